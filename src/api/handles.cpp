#include "api/handles.hpp"

#include <deque>
#include <exception>
#include <new>

#include "communicator/core/group.hpp"
#include "memory/user_memory.hpp"

namespace stretto::api {
namespace {

constexpr size_t kRestBeforeReuse = 256;

// Never destroyed: handles are used until the last thread is gone.
struct Handles {
  std::mutex mutex;
  std::deque<ncclComm*> resting;
  size_t used = 0;  // of the table, from its begin
};
Handles& handles() {
  static auto* instance = new Handles;
  return *instance;
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
    handle = new (handleTable.bytes + here.used++ * kHandleBytes) ncclComm;
  } else {
    return fail(Code::kSystem, "%zu communicators live in this process, the most that it may have",
                kMostHandles);
  }
  handle->communicator.store(communicator.get(), std::memory_order_relaxed);
  handle->owner = std::move(communicator);
  handle->lastError.clear();
  handle->magic.store(ncclComm::kAlive, std::memory_order_release);
  return handle;
}

size_t livingHandles() {
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  return here.used - here.resting.size();
}

std::shared_ptr<communicator::Communicator> takeHandle(ncclComm_t handle) {
  uint64_t alive = ncclComm::kAlive;
  if (!handle->magic.compare_exchange_strong(alive, 0)) return nullptr;
  memory::dropRegistrations(handle);
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  here.resting.push_back(handle);
  return handle->owner;
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

ncclResult_t finish(Status status) {
  if (!status.ok() && status.code != Code::kInProgress) communicator::Group::current().poison(status);
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
