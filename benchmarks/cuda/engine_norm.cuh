// The norm kernel after an all-reduce, as serving engines have it: a block for each token, vectors of 16
// bytes, the sum and what is added to it read once, and with an 8-bit copy its scale and codes in the same
// kernel. Begins while the all-reduce runs, and lets what follows begin. What norm_driver compares with.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "check.hpp"
#include "norm_call.hpp"

namespace stretto::bench {

struct alignas(16) Vector {
  __nv_bfloat162 of[4];
};
struct NormBuffers {
  const void* sum;
  void* residual;
  const void* bias;
  const void* gamma;
  void* normalised;
  void* codes;
  float* scales;
};

inline constexpr int kVectors = 4;  // of a thread, at most: 16384 elements by 512 threads

// Of all threads of a block: by warps, and then in shared memory.
template <typename Combine>
__device__ float ofBlock(float mine, float (&parts)[16], Combine combine) {
  for (int half = 16; half > 0; half /= 2) mine = combine(mine, __shfl_xor_sync(0xffffffffu, mine, half));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) mine = combine(mine, parts[warp]);
  return mine;
}

template <bool kBias>
__device__ Vector sumOf(const Vector& sum, const Vector& residual, const Vector* bias, float& squares) {
  Vector added;
  const Vector more = kBias ? *bias : Vector{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(sum.of[i]), y = __bfloat1622float2(residual.of[i]);
    float2 all{x.x + y.x, x.y + y.y};
    if constexpr (kBias) {
      const float2 b = __bfloat1622float2(more.of[i]);
      all = {all.x + b.x, all.y + b.y};
    }
    added.of[i] = __floats2bfloat162_rn(all.x, all.y);
    const float2 z = __bfloat1622float2(added.of[i]);
    squares += z.x * z.x + z.y * z.y;
  }
  return added;
}
__device__ inline Vector normOf(const Vector& added, const Vector& weight, float factor, float& largest) {
  Vector result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 z = __bfloat1622float2(added.of[i]), w = __bfloat1622float2(weight.of[i]);
    result.of[i] = __floats2bfloat162_rn(z.x * factor * w.x, z.y * factor * w.y);
    const float2 y = __bfloat1622float2(result.of[i]);
    largest = fmaxf(largest, fmaxf(fabsf(y.x), fabsf(y.y)));
  }
  return result;
}
__device__ inline uint2 codesOf(const Vector& normalised, float inverse) {
  uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 y = __bfloat1622float2(normalised.of[i]);
    const uint32_t pair =
        __nv_cvt_float2_to_fp8x2(make_float2(y.x * inverse, y.y * inverse), __NV_SATFINITE, __NV_E4M3);
    words[i / 2] |= pair << (16 * (i % 2));
  }
  return make_uint2(words[0], words[1]);
}

template <bool kBias, strettoScale_t kScaling, bool kNormalised>
__global__ void __launch_bounds__(512) addRmsNorm(NormBuffers buffers, int vectors, float epsilon) {
  __shared__ float parts[2][16];
  Vector added[kVectors];
  float squares = 0, largest = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const size_t token = size_t{blockIdx.x} * static_cast<size_t>(vectors);
  const auto at = [](int v) { return static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x); };
  auto* const residual = static_cast<Vector*>(buffers.residual) + token;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (at(v) >= vectors) break;
    added[v] = sumOf<kBias>(static_cast<const Vector*>(buffers.sum)[token + at(v)], residual[at(v)],
                            static_cast<const Vector*>(buffers.bias) + at(v), squares);
    residual[at(v)] = added[v];
  }
  squares = ofBlock(squares, parts[0], [](float a, float b) { return a + b; });
  const float factor = rsqrtf(squares / static_cast<float>(8 * vectors) + epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (at(v) >= vectors) break;
    added[v] = normOf(added[v], static_cast<const Vector*>(buffers.gamma)[at(v)], factor, largest);
    if constexpr (kNormalised) static_cast<Vector*>(buffers.normalised)[token + at(v)] = added[v];
  }
  if constexpr (kScaling != strettoScaleNone) {
    constexpr float kMost = 448, kLeast = 1.0f / 512;
    float scale = buffers.scales[0];
    if constexpr (kScaling == strettoScalePerToken) {
      scale = ofBlock(largest, parts[1], [](float a, float b) { return fmaxf(a, b); });
      scale = fmaxf(scale, kLeast) / kMost;
      if (threadIdx.x == 0) buffers.scales[blockIdx.x] = scale;
    }
    const float inverse = 1 / scale;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (at(v) >= vectors) break;
      static_cast<uint2*>(buffers.codes)[token + at(v)] = codesOf(added[v], inverse);
    }
  }
}

using EngineNorm = void (*)(NormBuffers, int, float);
// The sum that an all-reduce leaves is the raw sum, so nothing more is to be done where that is wanted.
inline EngineNorm engineNormFor(const Call& call) {
  if (call.hasBias) return addRmsNorm<true, strettoScaleNone, true>;
  if (call.scaling == strettoScalePerTensor) return addRmsNorm<false, strettoScalePerTensor, true>;
  if (call.scaling == strettoScaleNone) return addRmsNorm<false, strettoScaleNone, true>;
  return call.wantsNormalised ? addRmsNorm<false, strettoScalePerToken, true>
                              : addRmsNorm<false, strettoScalePerToken, false>;
}

inline void launchEngineNorm(const Call& call, const NormBuffers& buffers, int tokens, int hidden,
                             float epsilon, cudaStream_t stream) {
  const int vectors = hidden / 8;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(tokens));
  const int rounds = (vectors + 511) / 512;
  config.blockDim = dim3(static_cast<unsigned>(((vectors + rounds - 1) / rounds + 31) / 32 * 32));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, engineNormFor(call), buffers, vectors, epsilon), "the norm");
}

}  // namespace stretto::bench
