#include "api/handles.hpp"

#include <chrono>
#include <deque>
#include <vector>

#include "communicator/group.hpp"
#include "memory/user_memory.hpp"

namespace stretto::api {
namespace {

constexpr size_t kRestBeforeReuse = 1024;

// Never destroyed: handles are used until the last thread is gone.
struct Handles {
  std::mutex mutex;
  std::deque<std::unique_ptr<ncclComm>> all;
  std::deque<ncclComm*> resting;
};
Handles& handles() {
  static auto* instance = new Handles;
  return *instance;
}

}  // namespace

ncclComm_t makeHandle(std::shared_ptr<communicator::Communicator> communicator) {
  Handles& here = handles();
  std::lock_guard lock(here.mutex);
  ncclComm* handle = nullptr;
  if (here.resting.size() > kRestBeforeReuse) {
    handle = here.resting.front();
    here.resting.pop_front();
  } else {
    here.all.push_back(std::make_unique<ncclComm>());
    handle = here.all.back().get();
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
  return std::move(handle->owner);
}

void park(std::shared_ptr<communicator::Communicator> communicator) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLongEnough = std::chrono::seconds(10);  // calls end within a second of an abort
  struct Parked {
    Clock::time_point since;
    std::shared_ptr<communicator::Communicator> communicator;
  };
  static std::mutex mutex;
  static auto* parked = new std::deque<Parked>;
  std::vector<Parked> leaving;  // destroyed after the lock is gone
  std::lock_guard lock(mutex);
  while (!parked->empty() && Clock::now() - parked->front().since > kLongEnough) {
    leaving.push_back(std::move(parked->front()));
    parked->pop_front();
  }
  parked->push_back({Clock::now(), std::move(communicator)});
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

}  // namespace stretto::api
