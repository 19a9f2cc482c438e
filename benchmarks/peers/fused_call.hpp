// One all-reduce with residual add and RMSNorm by TensorRT-LLM's kernels, as benchmarks/cuda/norm_driver.cu
// hands it to the library that tools/gpu_peers makes of flashinfer.cu. Both include this, and neither the
// other.
#pragma once

#include <cstddef>
#include <cstdint>

enum TrtllmScale : int32_t { kTrtllmNoScale, kTrtllmScaleOfTensor, kTrtllmScaleOfToken };

// All pointers are memory of `device`, on which the caller's thread is. Elements are bfloat16.
struct TrtllmFusedCall {
  size_t size = sizeof(TrtllmFusedCall);  // a library of another release refuses the call
  void* workspace = nullptr;              // as for trtllmAllReduce
  void* input = nullptr;
  void* residual = nullptr;  // the new residual replaces it
  void* gamma = nullptr;
  void* normalised = nullptr;  // null: only with a scale of each token
  void* codes = nullptr;       // in float8e4m3, where there is a scale
  float* scales = nullptr;     // read (one of the tensor) or written (one of each token)
  void* stream = nullptr;
  float epsilon = 0;
  int32_t rank = 0;
  int32_t ranks = 0;
  int32_t tokens = 0;
  int32_t hidden = 0;
  int32_t device = 0;
  TrtllmScale scale = kTrtllmNoScale;
  int32_t oneShot = 0;
  int32_t early = 0;  // one-shot: the next kernel may begin before this one ends
};
