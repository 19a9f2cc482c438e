// What bounds a step of norm_driver from below on one GPU: a kernel that moves the bytes of the step between
// the same buffers, and computes and waits for nothing; and an empty kernel. Both let the next kernel begin
// early, as ours do. Gamma and the bias, which are the same for all tokens, are not moved.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "check.hpp"

namespace stretto::bench {

// Places that a call does not have are null. Of two ranks each writes the other's lines and reads its own:
// the sums travel so in one shot. A rank alone has none.
struct Moves {
  const uint4* input;
  uint4* residual;
  uint4* normalised;
  uint4* reduced;
  uint2* codes;
  uint4* sent;
  const uint4* received;
};

__device__ inline void beginEarly() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __global__ void emptyKernel() {
  beginEarly();
}

__device__ inline void mix(uint4& into, const uint4& from, uint32_t mask) {
  into.x ^= from.x & mask;
  into.y ^= from.y & mask;
  into.z ^= from.z & mask;
  into.w ^= from.w & mask;
}

// `packs` of 16 bytes. `mask` is 0, which the compiler cannot know, so that it keeps all loads.
static __global__ void __launch_bounds__(512) moveBytes(Moves moves, size_t packs, uint32_t mask) {
  beginEarly();
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < packs; i += stride) {
    uint4 pack = moves.input[i];
    uint4 residual = moves.residual[i];
    if (moves.sent != nullptr) {
      moves.sent[i] = pack;
      mix(pack, moves.received[i], mask);
    }
    mix(residual, pack, mask);
    moves.residual[i] = residual;
    if (moves.normalised != nullptr) moves.normalised[i] = pack;
    if (moves.reduced != nullptr) moves.reduced[i] = pack;
    if (moves.codes != nullptr) moves.codes[i] = make_uint2(pack.x, pack.y);
  }
}

// Bytes that one rank's kernel reads and writes.
inline size_t bytesOf(const Moves& moves, size_t packs) {
  size_t halves = 2 * 3;  // input, residual and residual again
  for (const void* place :
       {static_cast<const void*>(moves.normalised), static_cast<const void*>(moves.reduced),
        static_cast<const void*>(moves.sent), static_cast<const void*>(moves.received)})
    halves += place != nullptr ? 2 : 0;
  halves += moves.codes != nullptr ? 1 : 0;
  return packs * halves * 8;
}

template <typename... Parameters, typename... Arguments>
void launchEarly(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
                 Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "a kernel of the floor");
}

inline void launchEmpty(cudaStream_t stream) {
  launchEarly(emptyKernel, 1, 32, stream);
}
// `most` blocks; few packs have a thread each.
inline void launchMoves(const Moves& moves, size_t packs, unsigned most, cudaStream_t stream) {
  const unsigned threads = packs <= size_t{most} * 256 ? 256 : 512;
  const size_t blocks = std::clamp<size_t>((packs + threads - 1) / threads, 1, most);
  launchEarly(moveBytes, static_cast<unsigned>(blocks), threads, stream, moves, packs, 0u);
}

}  // namespace stretto::bench
