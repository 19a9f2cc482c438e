#include "communicator/core/host_memory.hpp"

#include <atomic>

#include "base/log.hpp"
#include "base/watch.hpp"
#include "platform/cuda/device.hpp"
#include "platform/cuda_driver.hpp"

namespace stretto::communicator {
namespace {

constexpr const char* kWithout =
    "this library was built without CUDA (no nvcc, or STRETTO_CUDA=OFF): install a package whose version "
    "does not end in "
    "\"+cpu\", or build one where CUDA's toolkit is";

}  // namespace

void lookForDeviceMemory() {
  if (platform::hasCudaDriver()) watch::set(watch::kDeviceMemory, true);
}

Status refuseDeviceMemory(const char* function, const char* which, const void* address, int rank) {
  if (!platform::isDeviceMemory(address)) return kOkStatus;
  return fail(
      Code::kInvalidArgument, "%s: the %s at %p is memory of a GPU, and rank %d is in host memory: %s",
      function, which, address, rank,
      platform::cuda::isBuiltIn() ? "so STRETTO_DEVICE=cpu says, or who made the communicator" : kWithout);
}

void warnOfMissingCuda() {
  static std::atomic<bool> said{false};
  const bool misses =
      !platform::cuda::isBuiltIn() && (platform::hasCudaDriver() || platform::machineHasNvidiaDriver());
  if (!misses || said.exchange(true)) return;
  STRETTO_LOG(kWarn, kInit,
              "ranks are in host memory although there are GPUs: %s. STRETTO_DEVICE=cpu if that is wanted.",
              kWithout);
}

}  // namespace stretto::communicator
