// Threads that nobody joins: what a rank on a GPU does for its peers while its user calls nothing. Their work
// shares what it needs, and ends by itself.
#pragma once

#include <utility>

#include "base/log.hpp"
#include "platform/cuda/device.hpp"
#include "platform/own_thread.hpp"

namespace stretto::communicator {

// Runs `work` on a thread of its own, on that device and without signals. False, and logged, if there is no
// thread for `purpose`.
template <typename Work>
bool startApart(int rank, int device, const char* purpose, Work work) {
  const bool begun = platform::startAlone([device, work = std::move(work)] {
    if (device >= 0) (void)platform::cuda::stayOn(device);  // or the work says why not
    work();
  });
  if (!begun)
    STRETTO_LOG(kWarn, kInit, "rank %d: there is no thread %s: %s", rank, purpose, platform::kNoThread);
  return begun;
}

}  // namespace stretto::communicator
