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

// The same of the kernels that only normalise, which follow an all-reduce: they may be loaded while that
// waits for a rank that the same thread has yet to launch.
inline Status loadNorms(KernelTable::Kind kind) {
  const Kernel& kernel =
      KernelTable::all().find(Collective::kAllReduceAddRmsNorm, algorithms::Algorithm::kLocal,
                              algorithms::Protocol::kSimple, kind, 1);
  const platform::cuda::AmidCaptures amid;
  for (const void* function :
       {reinterpret_cast<const void*>(kernel.normed), reinterpret_cast<const void*>(kernel.plainWhole),
        reinterpret_cast<const void*>(kernel.anyWhole)}) {
    cudaFuncAttributes attributes;
    if (function != nullptr)
      STRETTO_TRY(check(cudaFuncGetAttributes(&attributes, function), "loading a kernel"));
  }
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
