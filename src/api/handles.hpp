// What a user holds: ncclComm_t and ncclWindow_t. A handle's memory is never returned, only reused long
// after, so a call with a destroyed communicator gets a sentence instead of a crash. The communicator itself
// is freed when it has ended and no call uses it any more.
//
// How that is known: hazard pointers (M. Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free
// Objects", IEEE TPDS 15(6), 2004).
//
//   1. A call writes the handle into a record of its thread, passes the frequent fence of a pair, and looks
//      whether the handle is alive.
//   2. Who ends a communicator marks the handle dead, passes the rare fence, and looks through the records of
//      all threads. Either that finds the handle, or the call finds it dead.
//   3. A communicator stays while its handle is found, or while a thread of the library shares it. It is
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

// The body behind ncclComm_t.
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

// What a thread uses now. Records are never freed: a thread that ends leaves its own to one that begins.
struct CallingThread {
  static constinit thread_local CallingThread* mine;  // null until this thread's first call
  static CallingThread& make();

  static constexpr unsigned kDeepest = 4;  // calls within calls, of a profiler plugin's
  std::atomic<const ncclComm*> uses[kDeepest] = {};
  unsigned depth = 0;
  const platform::FencePair fences{};  // the rare side is of who ends a communicator
  std::atomic<bool> isTaken{true};
  CallingThread* next = nullptr;  // of all records; does not change once others see this one

  // Stands in the last place while calls are nested deeper than there are places. Any handle may then be in
  // use, and nothing is freed.
  static const ncclComm* any() { return reinterpret_cast<const ncclComm*>(handleTable.bytes + 1); }
};

// The communicator behind a handle, which stays while this lives. Null for a handle that is null, damaged or
// destroyed, and the error is said, if `function` is not null. For the stack of a call.
class InUse {
 public:
  InUse(ncclComm_t handle, const char* function)
      : thread_(CallingThread::mine == nullptr ? CallingThread::make() : *CallingThread::mine) {
    const unsigned depth = thread_.depth++;
    const bool hasPlace = depth < CallingThread::kDeepest;
    use_ = &thread_.uses[hasPlace ? depth : CallingThread::kDeepest - 1];
    outer_ = use_->load(std::memory_order_relaxed);
    use_->store(hasPlace ? handle : CallingThread::any(), std::memory_order_release);
    thread_.fences.frequent();
    if (owns(handle) && handle->magic.load(std::memory_order_acquire) == ncclComm::kAlive) [[likely]] {
      communicator_ = handle->communicator.load(std::memory_order_relaxed);
    } else if (function != nullptr) {
      sayNone(handle, function);
    }
  }
  ~InUse() {
    use_->store(outer_, std::memory_order_release);
    --thread_.depth;
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

  communicator::Communicator* get() const { return communicator_; }
  operator communicator::Communicator*() const { return communicator_; }
  communicator::Communicator* operator->() const { return communicator_; }

 private:
  static void sayNone(ncclComm_t handle, const char* function) noexcept;

  CallingThread& thread_;
  std::atomic<const ncclComm*>* use_;
  const ncclComm* outer_;  // null, but where there is no place
  communicator::Communicator* communicator_ = nullptr;
};

ncclResult_t toResult(Status status);
// The same, and a failure inside a group spoils the group.
ncclResult_t finish(Status status);
// For `catch (...)` around every entry point: nothing that C++ throws leaves through C.
ncclResult_t caught(const char* function) noexcept;

}  // namespace stretto::api
