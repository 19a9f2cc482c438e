// Messages of a rank to itself. Of engine.cu alone.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "executors/cuda/check.hpp"
#include "executors/cuda/engine.hpp"

namespace stretto::executors::cuda {

// Messages to oneself are copied: the k-th send meets the k-th receive. All are looked at before any is.
inline Status copyToSelf(std::span<const DeviceTransfer> transfers, int rank, cudaStream_t stream) {
  std::vector<const DeviceTransfer*> sends, receives;
  for (const DeviceTransfer& transfer : transfers) {
    if (transfer.peer == rank) (transfer.isSend ? sends : receives).push_back(&transfer);
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    if (i < receives.size() && receives[i]->tag == sends[i]->tag) continue;
    return fail(
        Code::kInvalidUsage,
        "rank %d sends %zu bytes to itself: the same group must hold a receive of the same count and type",
        rank, sends[i]->bytes);
  }
  if (receives.size() > sends.size()) {
    return fail(Code::kInvalidUsage, "rank %d receives from itself without a send in the same group", rank);
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    STRETTO_TRY(check(
        cudaMemcpyAsync(receives[i]->data, sends[i]->data, sends[i]->bytes, cudaMemcpyDeviceToDevice, stream),
        "copying a message to oneself"));
  }
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
