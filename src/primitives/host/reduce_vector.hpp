// Vectors of one CPU level, for the level files only. Everything that can be is written with the compilers'
// vector extensions, once for all levels; what needs an instruction by name (non-temporal stores, fp16
// conversion, packing, wide multiplication, maximum) is in reduce_vector_x86.hpp and reduce_vector_neon.hpp,
// which define the same functions.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define STRETTO_VECTOR_INLINE [[gnu::always_inline]] inline

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

#if defined(__AVX512F__)
constexpr int kWidth = 64;
#elif defined(__AVX2__)
constexpr int kWidth = 32;
#else
constexpr int kWidth = 16;
#endif

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kWidth)));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;

using Bytes = Vector<uint8_t>;
using Words16 = Vector<uint16_t>;
using Words32 = Vector<uint32_t>;
using Words64 = Vector<uint64_t>;
using Floats = Vector<float>;
using Doubles = Vector<double>;

// The same bits as another vector type of the same size.
template <typename To, typename From>
STRETTO_VECTOR_INLINE To as(From vector) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)vector;  // NOLINT: vector reinterpretation is spelled as a cast
}

template <typename V, typename T>
STRETTO_VECTOR_INLINE V splat(T value) {
  return value - V{};
}

STRETTO_VECTOR_INLINE Bytes load(const std::byte* from) {
  Bytes vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

STRETTO_VECTOR_INLINE void store(std::byte* to, Bytes vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

template <typename Word>
STRETTO_VECTOR_INLINE void copyEnds(std::byte* to, const std::byte* from, size_t bytes) {
  Word first, last;
  __builtin_memcpy(&first, from, sizeof first);
  __builtin_memcpy(&last, from + bytes - sizeof last, sizeof last);
  __builtin_memcpy(to, &first, sizeof first);
  __builtin_memcpy(to + bytes - sizeof last, &last, sizeof last);
}

// Copies 1 to 31 bytes by two overlapping moves; a call of memcpy would cost more than the reduction.
STRETTO_VECTOR_INLINE void copyFew(std::byte* to, const std::byte* from, size_t bytes) {
  typedef uint8_t Bytes16 __attribute__((vector_size(16)));
  if (bytes >= 16) return copyEnds<Bytes16>(to, from, bytes);
  if (bytes >= 8) return copyEnds<uint64_t>(to, from, bytes);
  if (bytes >= 4) return copyEnds<uint32_t>(to, from, bytes);
  if (bytes >= 2) return copyEnds<uint16_t>(to, from, bytes);
  *to = *from;
}

// The first 1 to kWidth - 1 bytes of a vector; the others read as 0 and are not touched.
#if defined(__AVX512F__)
STRETTO_VECTOR_INLINE Bytes loadPartial(const std::byte* from, size_t bytes) {
  return (Bytes)_mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, bytes), from);
}
STRETTO_VECTOR_INLINE void storePartial(std::byte* to, Bytes vector, size_t bytes) {
  _mm512_mask_storeu_epi8(to, _bzhi_u64(~0ull, bytes), (__m512i)vector);
}
#else
STRETTO_VECTOR_INLINE Bytes loadPartial(const std::byte* from, size_t bytes) {
  alignas(kWidth) std::byte padded[kWidth] = {};
  copyFew(padded, from, bytes);
  return load(padded);
}
STRETTO_VECTOR_INLINE void storePartial(std::byte* to, Bytes vector, size_t bytes) {
  alignas(kWidth) std::byte padded[kWidth];
  store(padded, vector);
  copyFew(to, padded, bytes);
}
#endif

template <typename V>
STRETTO_VECTOR_INLINE V greater(V a, V b) {
  return a > b ? a : b;
}
template <typename V>
STRETTO_VECTOR_INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}

}  // namespace
}  // namespace stretto

#if defined(__x86_64__)
#include "primitives/host/reduce_vector_x86.hpp"
#elif defined(__aarch64__)
#include "primitives/host/reduce_vector_neon.hpp"
#else
#error "reduce_vector.hpp knows x86-64 and aarch64; add a reduce_vector_*.hpp for this architecture"
#endif
