// What CUDA answered, as a Status. For files of this folder.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.hpp"

namespace stretto::executors::cuda {

inline Status check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return kOkStatus;
  (void)cudaGetLastError();
  return fail(Code::kSystem, "CUDA: %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace stretto::executors::cuda
