// Loads kernels before they are launched, for ranks that share a GPU. Of engine.cu alone.
#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <mutex>
#include <set>
#include <vector>

#include "executors/cuda/check.hpp"
#include "executors/cuda/kernels.hpp"
#include "platform/cuda/device.hpp"

namespace stretto::executors::cuda {

// CUDA loads a kernel at its first launch, and waits for all that runs on the device before it does. Where
// another rank's kernel runs there, and waits for this very launch, neither would go on: so all are loaded
// before the first.
inline Status loadKernels(int device, std::initializer_list<const void*> others) {
  static std::mutex mutex;
  static auto* const loaded = new std::set<int>;
  const std::lock_guard lock(mutex);
  if (loaded->count(device) != 0) return kOkStatus;
  const platform::cuda::AmidCaptures amid;
  std::vector<const void*> functions = KernelTable::all().functions();
  functions.insert(functions.end(), others);
  for (const void* function : functions) {
    cudaFuncAttributes attributes;
    STRETTO_TRY(check(cudaFuncGetAttributes(&attributes, function), "loading a kernel"));
  }
  loaded->insert(device);
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
