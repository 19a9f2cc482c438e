// What a user holds: ncclComm_t and ncclWindow_t. A handle's memory is never returned, only reused long
// after, so a call with a destroyed communicator gets a sentence instead of a crash.
#pragma once

#include <atomic>
#include <memory>

#include "communicator/communicator.hpp"
#include "nccl.h"

// The body behind ncclComm_t. A destroyed communicator has released all it held, but the object stays until
// the handle is used again, long after, for calls of other threads that are on their way out.
struct ncclComm {
  static constexpr uint64_t kAlive = 0x5374726574746f43;  // "StrettoC"
  std::atomic<uint64_t> magic{0};
  std::atomic<stretto::communicator::Communicator*> communicator{nullptr};
  std::shared_ptr<stretto::communicator::Communicator> owner;  // changed under the lock of all handles
  std::mutex lastErrorMutex;
  std::string lastError;  // what ncclGetLastError(comm) points at
};

namespace stretto::api {

ncclComm_t makeHandle(std::shared_ptr<communicator::Communicator> communicator);
// The handle is dead from here; the communicator it held, null if it was dead already.
std::shared_ptr<communicator::Communicator> takeHandle(ncclComm_t handle);

// The communicator behind a handle; null, with the error said, for one that is null, damaged or destroyed.
inline communicator::Communicator* find(ncclComm_t handle, const char* function) {
  if (handle != nullptr && handle->magic.load(std::memory_order_acquire) == ncclComm::kAlive) [[likely]] {
    return handle->communicator.load(std::memory_order_relaxed);
  }
  (void)fail(Code::kInvalidArgument, "%s: the communicator is %s", function,
             handle == nullptr ? "null" : "not one, or was destroyed");
  return nullptr;
}

ncclResult_t toResult(Status status);
// The same, and a failure inside a group spoils the group.
ncclResult_t finish(Status status);
// For `catch (...)` around every entry point: nothing that C++ throws leaves through C.
ncclResult_t caught(const char* function) noexcept;

}  // namespace stretto::api
