// What a user holds: ncclComm_t and ncclWindow_t. A handle's memory is never returned, only reused long
// after, so a call with a destroyed communicator gets a sentence instead of a crash.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "communicator/core/communicator.hpp"
#include "nccl.h"
#include "platform/export.hpp"

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

// All handles lie in one table, so that a comparison of addresses tells whether a pointer is a handle of this
// library, without a look at the memory behind it. The table is zero-initialised: a page of it takes memory
// once a handle in it is made.
inline constexpr size_t kMostHandles = 65536;
inline constexpr size_t kHandleBytes = 128;
static_assert(sizeof(ncclComm) <= kHandleBytes);
struct HandleTable {
  alignas(kHandleBytes) std::byte bytes[kMostHandles * kHandleBytes];
};
STRETTO_HIDDEN extern HandleTable handleTable;

// Whether it is a handle of this library: of a communicator that lives or was destroyed, or one that was
// never given out. False for null.
inline bool owns(const ncclComm* handle) {
  const size_t offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(handleTable.bytes);
  return offset < sizeof handleTable.bytes && offset % kHandleBytes == 0;
}

// Fails when all are taken. Any thread.
Result<ncclComm_t> makeHandle(std::shared_ptr<communicator::Communicator> communicator);
// How many live.
size_t livingHandles();
// The handle is dead from here; the communicator it held, null if it was dead already.
std::shared_ptr<communicator::Communicator> takeHandle(ncclComm_t handle);

// The communicator behind a handle; null, with the error said, for one that is null, damaged or destroyed.
inline communicator::Communicator* find(ncclComm_t handle, const char* function) {
  if (owns(handle) && handle->magic.load(std::memory_order_acquire) == ncclComm::kAlive) [[likely]] {
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
