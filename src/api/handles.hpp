// What a user holds: ncclComm_t and ncclWindow_t. A handle's memory is never returned, only reused long
// after, so a call with a destroyed communicator gets a sentence instead of a crash. The communicator itself
// is freed when it has ended and no call uses it any more.
//
// How that is known:
//
//   1. A call is counted in its handle, passes a fence, and looks whether the handle is alive.
//   2. Who ends a communicator marks the handle dead, passes a fence, and reads the count. Either that shows
//      the call, or the call finds the handle dead.
//   3. A communicator stays while its handle counts calls, or while a thread of the library shares it. It is
//      looked for again whenever another one ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "communicator/core/communicator.hpp"
#include "nccl.h"
#include "platform/export.hpp"
#include "platform/fence.hpp"
#include "platform/this_thread.hpp"

namespace stretto::api {

// Counts the calls that use a handle. Nearly all of them are made by one thread. The first thread that runs
// an operation on the handle becomes its owner and counts with plain stores, which the rare side of
// platform::FencePair makes visible. All other threads, also later ones, count with locked instructions.
// (Biased reference counting: J. Choi, T. Shull, J. Torrellas, PACT 2018.) Any thread.
class Users {
 public:
  // `isOperation`: the thread becomes the owner if there is none. It stays the owner when the handle is given
  // out again. The result is whether the owner's counter has the call; end() takes it.
  bool begin(bool isOperation) {
    if (owner_.load(std::memory_order_relaxed) != platform::thisThread()) [[unlikely]] {
      if (!isOperation || !becomeOwner()) {
        ofOthers_.fetch_add(1, std::memory_order_seq_cst);
        return false;
      }
    }
    // Acquire: the owner may be a thread that has the name of one that ended.
    ofOwner_.store(ofOwner_.load(std::memory_order_acquire) + 1, std::memory_order_release);
    platform::lightFence();
    return true;
  }
  void end(bool isOfOwner) {
    if (isOfOwner) [[likely]] {
      ofOwner_.store(ofOwner_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    } else {
      ofOthers_.fetch_sub(1, std::memory_order_release);
    }
  }
  // The caller has passed FencePair::rare() since it marked the handle dead.
  bool any() const {
    return ofOwner_.load(std::memory_order_acquire) != 0 || ofOthers_.load(std::memory_order_acquire) != 0;
  }

 private:
  bool becomeOwner();

  std::atomic<uintptr_t> owner_{0};  // platform::thisThread()
  std::atomic<unsigned> ofOwner_{0};
  std::atomic<unsigned> ofOthers_{0};
};

}  // namespace stretto::api

// The body behind ncclComm_t. One that has not been given out yet is all zeros, which is a valid body. So a
// call with a stray pointer to it may count itself there, and finds that it is not alive.
struct alignas(128) ncclComm {
  static constexpr uint64_t kAlive = 0x5374726574746f43;  // "StrettoC"
  std::atomic<uint64_t> magic{0};
  std::atomic<stretto::communicator::Communicator*> communicator{nullptr};
  stretto::api::Users users;

  struct Kept {
    std::shared_ptr<stretto::communicator::Communicator> owner;  // changed under the lock of all handles
    std::mutex lastErrorMutex;
    std::string lastError;  // what ncclGetLastError(comm) points at
  };
  Kept* kept = nullptr;  // made when the handle is first given out, and never destroyed
};

namespace stretto::api {

// All handles lie in one table, so that a comparison of addresses tells whether a pointer is a handle of this
// library, without a look at the memory behind it. The table is zero-initialised: a page of it takes memory
// once a handle in it is used. It is of bytes because clang with libc++ refuses to evaluate 65,536
// constructors at compile time.
inline constexpr size_t kMostHandles = 65536;
struct HandleTable {
  alignas(ncclComm) std::byte bytes[kMostHandles * sizeof(ncclComm)];
};
STRETTO_HIDDEN extern HandleTable handleTable;

// Whether it is a handle of this library: of a communicator that lives or was destroyed, or one that was
// never given out. False for null.
inline bool owns(const ncclComm* handle) {
  const size_t offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(handleTable.bytes);
  return offset < sizeof handleTable.bytes && offset % sizeof(ncclComm) == 0;
}

// Fails when all are taken. Any thread.
Result<ncclComm_t> makeHandle(std::shared_ptr<communicator::Communicator> communicator);
// How many live.
size_t livingHandles();

// A communicator that ends. It is freed with this, or later by the next one, once nobody uses it.
class EndedCommunicator {
 public:
  struct Held {
    ncclComm_t handle;
    std::shared_ptr<communicator::Communicator> communicator;
  };
  // None, or one.
  explicit EndedCommunicator(std::list<Held> held) : held_(std::move(held)) {}
  ~EndedCommunicator();
  EndedCommunicator(const EndedCommunicator&) = delete;
  EndedCommunicator& operator=(const EndedCommunicator&) = delete;

  explicit operator bool() const { return !held_.empty() && held_.front().communicator != nullptr; }
  communicator::Communicator* operator->() const { return held_.front().communicator.get(); }

 private:
  std::list<Held> held_;
};

// The handle is dead from here; false if it was dead already. The caller uses it no more.
EndedCommunicator endHandle(ncclComm_t handle);

// The communicator behind a handle, which stays while this lives. Null for a handle that is null, damaged or
// destroyed, and the error is said, if `function` is not null. For the stack of a call.
class InUse {
 public:
  // `isOperation`: as Users::begin() has it.
  [[gnu::always_inline]] InUse(ncclComm_t handle, const char* function, bool isOperation = false) {
    if (owns(handle)) [[likely]] {
      handle_ = handle;
      isOfOwner_ = handle->users.begin(isOperation);
      if (isAlive(handle)) [[likely]]
        communicator_ = handle->communicator.load(std::memory_order_relaxed);
    }
    if (communicator_ == nullptr && function != nullptr) [[unlikely]]
      sayNone(handle, function);
  }
  [[gnu::always_inline]] ~InUse() {
    if (handle_ != nullptr) [[likely]]
      handle_->users.end(isOfOwner_);
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

  communicator::Communicator* get() const { return communicator_; }
  operator communicator::Communicator*() const { return communicator_; }
  communicator::Communicator* operator->() const { return communicator_; }

 private:
  static bool isAlive(ncclComm_t handle) {
    return handle->magic.load(std::memory_order_seq_cst) == ncclComm::kAlive;
  }
  static void sayNone(ncclComm_t handle, const char* function) noexcept;

  ncclComm_t handle_ = nullptr;  // if this is counted
  bool isOfOwner_ = false;
  communicator::Communicator* communicator_ = nullptr;
};

ncclResult_t toResult(Status status);
// The same, and a failure inside a group spoils the group.
ncclResult_t finishFailed(Status status);
inline ncclResult_t finish(Status status) {
  if (status.ok()) [[likely]] {
    return ncclSuccess;
  }
  return finishFailed(status);
}
// For `catch (...)` around every entry point: nothing that C++ throws leaves through C.
ncclResult_t caught(const char* function) noexcept;

}  // namespace stretto::api
