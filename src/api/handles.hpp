// What a user holds: ncclComm_t and ncclWindow_t. A handle's memory is never returned, only reused long
// after, so a call with a destroyed communicator gets a sentence instead of a crash.
#pragma once

#include <memory>

#include "communicator/communicator.hpp"
#include "nccl.h"

// The body behind ncclComm_t.
struct ncclComm {
  static constexpr uint64_t kAlive = 0x5374726574746f43;  // "StrettoC"
  std::atomic<uint64_t> magic{0};
  std::shared_ptr<stretto::communicator::Communicator> communicator;
  std::string lastError;  // what ncclGetLastError(comm) points at
};

namespace stretto::api {

ncclComm_t makeHandle(std::shared_ptr<communicator::Communicator> communicator);
// The handle is dead from here; gives back what it held.
std::shared_ptr<communicator::Communicator> takeHandle(ncclComm_t handle);

// The communicator behind a handle; null, with the error said, for one that is null, damaged or destroyed.
inline const std::shared_ptr<communicator::Communicator>* find(ncclComm_t handle, const char* function) {
  if (handle != nullptr && handle->magic.load(std::memory_order_relaxed) == ncclComm::kAlive) [[likely]] {
    return &handle->communicator;
  }
  (void)fail(Code::kInvalidArgument, "%s: the communicator is %s", function,
             handle == nullptr ? "null" : "not one, or was destroyed");
  return nullptr;
}

ncclResult_t toResult(Status status);
// The same, and a failure inside a group spoils the group.
ncclResult_t finish(Status status);

}  // namespace stretto::api
