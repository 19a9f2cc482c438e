// A Failure from a CUDA call that did not succeed. Used by the drivers of this folder.
#pragma once

#include <cuda_runtime.h>

#include "failure.hpp"

namespace stretto::bench {

inline void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Failure(std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace stretto::bench
