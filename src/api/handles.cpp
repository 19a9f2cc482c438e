#include "api/handles.hpp"

#include <deque>
#include <exception>
#include <new>

#include "communicator/group.hpp"
#include "memory/user_memory.hpp"

namespace stretto::api {
namespace {

constexpr size_t kRestBeforeReuse = 256;

// Never destroyed: handles are used until the last thread is gone.
struct Handles {
  std::mutex mutex;
  std::deque<ncclComm*> resting;
};
Handles& handles() {
  static auto* instance = new Handles;
  return *instance;
}

}  // namespace

constinit HandleBlocks handleBlocks;

ncclComm* HandleBlocks::add() {
  ncclComm* block = blocks_[last_].load(std::memory_order_relaxed);
  if (block != nullptr && used_ == lengthOf(last_)) {
    block = nullptr;
    ++last_;
    used_ = 0;
  }
  if (block == nullptr) {
    block = new ncclComm[lengthOf(last_)];
    blocks_.at(last_).store(block, std::memory_order_release);
  }
  return block + used_++;
}

ncclComm_t makeHandle(std::shared_ptr<communicator::Communicator> communicator) {
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  ncclComm* handle = nullptr;
  if (here.resting.size() > kRestBeforeReuse) {
    handle = here.resting.front();
    here.resting.pop_front();
  } else {
    handle = handleBlocks.add();
  }
  handle->communicator.store(communicator.get(), std::memory_order_relaxed);
  handle->owner = std::move(communicator);
  handle->lastError.clear();
  handle->magic.store(ncclComm::kAlive, std::memory_order_release);
  return handle;
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
