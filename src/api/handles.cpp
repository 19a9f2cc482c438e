#include "api/handles.hpp"

#include <exception>
#include <iterator>
#include <list>
#include <new>

#include "communicator/core/group.hpp"
#include "memory/user_memory.hpp"

namespace stretto::api {
namespace {

// Handles that rest before they are used again, for those who still ask them.
constexpr size_t kRestBeforeReuse = 256;

// Never destroyed: handles are used until the last thread is gone.
struct Handles {
  std::mutex mutex;
  std::list<ncclComm*> resting;
  size_t used = 0;                           // of the table, from its begin
  std::list<EndedCommunicator::Held> ended;  // not freed yet
};
Handles& handles() {
  static auto* instance = new Handles;
  return *instance;
}

// By a call, or by a thread of the library, to which a call may have given it. What a forked child has of its
// parent it does not touch.
bool isUsed(const EndedCommunicator::Held& held) {
  if (held.communicator == nullptr) return false;
  return held.handle->users.any() || held.communicator.use_count() > 1 ||
         !held.communicator->self().isOfThisProcess();
}

// Frees what has ended and nobody uses any more.
void freeEnded() {
  static const platform::FencePair fences{};
  Handles& here = handles();
  std::list<EndedCommunicator::Held> free, used;
  {
    const std::lock_guard lock(here.mutex);
    free.swap(here.ended);
  }
  fences.rare();
  for (auto one = free.begin(); one != free.end();) {
    const auto next = std::next(one);
    if (isUsed(*one)) used.splice(used.end(), free, one);
    one = next;
  }
  const std::lock_guard lock(here.mutex);
  here.ended.splice(here.ended.end(), used);
}

}  // namespace

constinit HandleTable handleTable{};

Result<ncclComm_t> makeHandle(std::shared_ptr<communicator::Communicator> communicator) {
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  ncclComm* handle = nullptr;
  if (here.resting.size() > kRestBeforeReuse || (here.used == kMostHandles && !here.resting.empty())) {
    handle = here.resting.front();
    here.resting.pop_front();
  } else if (here.used < kMostHandles) {
    handle = reinterpret_cast<ncclComm*>(handleTable.bytes) + here.used;
    handle->kept = new ncclComm::Kept;
    ++here.used;
  } else {
    return fail(Code::kSystem, "%zu communicators live in this process, the most that it may have",
                kMostHandles);
  }
  handle->communicator.store(communicator.get(), std::memory_order_relaxed);
  handle->kept->owner = std::move(communicator);
  {
    const std::lock_guard words(handle->kept->lastErrorMutex);
    handle->kept->lastError.clear();
  }
  handle->magic.store(ncclComm::kAlive, std::memory_order_release);
  return handle;
}

size_t livingHandles() {
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  return here.used - here.resting.size();
}

EndedCommunicator endHandle(ncclComm_t handle) {
  std::list<EndedCommunicator::Held> held(1);  // these first: they may fail
  std::list<ncclComm*> rests{handle};
  uint64_t alive = ncclComm::kAlive;
  if (!handle->magic.compare_exchange_strong(alive, 0)) return EndedCommunicator({});
  memory::dropRegistrations(handle);
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  here.resting.splice(here.resting.end(), rests);
  held.front() = {handle, std::move(handle->kept->owner)};
  return EndedCommunicator(std::move(held));
}

EndedCommunicator::~EndedCommunicator() {
  if (held_.empty()) return;
  {
    Handles& here = handles();
    const std::lock_guard lock(here.mutex);
    here.ended.splice(here.ended.end(), held_);
  }
  freeEnded();
}

// Only where a fence reaches all threads of the process: the plain stores need it.
bool Users::becomeOwner() {
  uintptr_t nobody = 0;
  return platform::hasProcessFence() &&
         owner_.compare_exchange_strong(nobody, platform::thisThread(), std::memory_order_relaxed);
}

void InUse::sayNone(ncclComm_t handle, const char* function) noexcept try {
  (void)fail(Code::kInvalidArgument, "%s: the communicator is %s", function,
             handle == nullptr ? "null" : "not one, or was destroyed");
} catch (...) {  // out of memory: the call fails all the same
}

ncclResult_t toResult(Status status) {
  switch (status.code) {
    case Code::kOk:
      return ncclSuccess;
    case Code::kInProgress:
      return ncclInProgress;
    case Code::kInvalidArgument:
      return ncclInvalidArgument;
    case Code::kInvalidUsage:
      return ncclInvalidUsage;
    case Code::kSystem:
      return ncclSystemError;
    case Code::kInternal:
      return ncclInternalError;
    case Code::kRemote:
      return ncclRemoteError;
    case Code::kTimeout:
      return ncclRemoteError;
    case Code::kAborted:
      return ncclSystemError;
  }
  return ncclInternalError;
}

ncclResult_t finishFailed(Status status) {
  if (status.code != Code::kInProgress) communicator::Group::current().poison(status);
  return toResult(status);
}

ncclResult_t caught(const char* function) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return finish(fail(Code::kSystem, "%s: out of memory", function));
  } catch (const std::exception& error) {
    return finish(fail(Code::kSystem, "%s: %s", function, error.what()));
  } catch (...) {
    return finish(fail(Code::kInternal, "%s: an unknown exception", function));
  }
}

}  // namespace stretto::api
