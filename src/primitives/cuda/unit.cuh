// The unit in which kernels load, reduce and store, and what everything that computes on it needs. For
// primitives/cuda and the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

// Runs in kernels and, so that arithmetic is tested without a GPU, on the CPU.
#define STRETTO_BOTH __host__ __device__ __forceinline__
// Likewise, kept as one function per kernel where code size matters more than a call.
#define STRETTO_BOTH_CALLED inline __host__ __device__ __noinline__

// Before a loop of constant bounds, whose arrays thereby become registers.
#if defined(__CUDA_ARCH__)
#define STRETTO_UNROLL _Pragma("unroll")
#else
#define STRETTO_UNROLL
#endif

namespace stretto::cuda {

// Eight bytes of elements, the first in the lowest bits.
using Unit = uint64_t;
inline constexpr size_t kUnitBytes = sizeof(Unit);

// The same bits as another type of the same size.
template <typename To, typename From>
STRETTO_BOTH To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace stretto::cuda
