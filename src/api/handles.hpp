// What a user holds: ncclComm_t and ncclWindow_t. A handle's memory is never returned, only reused long
// after, so a call with a destroyed communicator gets a sentence instead of a crash.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
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

// Where handles lie: a few blocks, each twice as long as the one before, which are made as they are needed
// and never returned. So a pointer is known to be a handle of this library, alive or dead, without a look at
// what it points to.
class HandleBlocks {
 public:
  // Any thread.
  bool hold(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    for (size_t number = 0; number < blocks_.size(); ++number) {
      const auto begin = reinterpret_cast<uintptr_t>(blocks_[number].load(std::memory_order_acquire));
      if (begin == 0) return false;
      const size_t offset = address - begin;
      if (offset < lengthOf(number) * sizeof(ncclComm)) return offset % sizeof(ncclComm) == 0;
    }
    return false;
  }
  // A handle that was never used. One thread at a time.
  ncclComm* add();

 private:
  static constexpr size_t lengthOf(size_t number) { return size_t{256} << number; }
  std::array<std::atomic<ncclComm*>, 24> blocks_{};
  size_t last_ = 0;  // the block that add() takes from
  size_t used_ = 0;  // handles of it
};
extern HandleBlocks handleBlocks;

// Whether it is a handle of this library: of a communicator that lives or was destroyed. False for null.
inline bool owns(const ncclComm* handle) {
  return handleBlocks.hold(handle);
}

ncclComm_t makeHandle(std::shared_ptr<communicator::Communicator> communicator);
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
