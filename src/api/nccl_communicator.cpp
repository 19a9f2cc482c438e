// nccl.h, and strettoCommInitHostRank of stretto.h: how communicators are made, asked and ended.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "api/config.hpp"
#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "base/parameters.hpp"
#include "bootstrap/service.hpp"
#include "communicator/core/group.hpp"
#include "stretto.h"

namespace stretto::api {
namespace {

using communicator::Communicator;
using communicator::Config;
using communicator::Group;
using Shared = std::shared_ptr<Communicator>;

bootstrap::UniqueId fromNccl(const ncclUniqueId& id) {
  static_assert(sizeof(ncclUniqueId) == sizeof(bootstrap::UniqueId));
  bootstrap::UniqueId ours;
  std::memcpy(ours.bytes, id.internal, sizeof ours.bytes);
  return ours;
}

Status makeId(const char* function, ncclUniqueId* to) {
  if (to == nullptr) return fail(Code::kInvalidArgument, "%s: uniqueId is null", function);
  const auto id = bootstrap::Service::createSession();
  if (!id.ok()) return id.status();
  std::memcpy(to->internal, id.value().bytes, sizeof to->internal);
  return kOkStatus;
}

Status nameGrowth(Communicator& communicator, ncclUniqueId* to) {
  if (to == nullptr) return fail(Code::kInvalidArgument, "ncclCommGetUniqueId: uniqueId is null");
  const auto id = communicator.children().name();
  if (!id.ok()) return id.status();
  std::memcpy(to->internal, id.value().bytes, sizeof to->internal);
  return kOkStatus;
}

// Unique ids that nobody will join, because their communicator meets at another of its list. Each is closed
// by the process that made it, once the communicator is there or cannot be made: when the last reference
// goes.
class SpareIds {
 public:
  explicit SpareIds(std::vector<bootstrap::UniqueId> ids) : ids_(std::move(ids)) {}
  ~SpareIds() {
    for (const bootstrap::UniqueId& id : ids_) bootstrap::Service::closeSession(id);
  }
  SpareIds(const SpareIds&) = delete;
  SpareIds& operator=(const SpareIds&) = delete;

 private:
  const std::vector<bootstrap::UniqueId> ids_;
};
using Spare = std::shared_ptr<const SpareIds>;

// A blocking communicator that could not be made leaves no handle behind.
Status initialiseOrDrop(const Shared& communicator, ncclComm_t* slot) {
  const Status status = communicator->initialise();
  if (!status.ok()) {
    endHandle(*slot);
    *slot = nullptr;
    communicator->release();
  }
  return status;
}

// Gives out the handle and starts the communicator: now, with the group, or on its worker. `spare` lasts
// until that is done.
Status launch(Shared communicator, ncclComm_t* slot, const Spare& spare = nullptr) {
  auto handle = makeHandle(communicator);
  if (!handle.ok()) return handle.status();
  *slot = handle.value();
  if (!communicator->self().config().blocking) {
    communicator->queue().worker()->submit([communicator, spare] { (void)communicator->initialise(); });
    return Status{Code::kInProgress};
  }
  if (Group::current().open()) {
    Group::current().addJob(nullptr, communicator->self().config().device,
                            [communicator, slot, spare] { return initialiseOrDrop(communicator, slot); });
    return kOkStatus;
  }
  return initialiseOrDrop(communicator, slot);
}

// `ids`: at least one; where there are several, the ranks meet at the first.
// `given` is the device of the rank, if it is not for STRETTO_DEVICE to say.
// `function` is what the user has called.
Status initRank(const char* function, ncclComm_t* slot, int ranks, std::span<const ncclUniqueId> ids,
                int rank, const ncclConfig_t* config, std::optional<int> given = std::nullopt) {
  if (slot == nullptr) return fail(Code::kInvalidArgument, "%s: comm is null", function);
  *slot = nullptr;
  const auto device = given ? Result<int>(*given) : communicator::deviceOfThisThread();
  if (!device.ok()) return device.status();
  // More GPUs than this library serves are handed over to NCCL.
  const int most = device.value() >= 0 ? bootstrap::kMaxRanks : kMostRanks;
  if (ranks < 1 || ranks > most) {
    return fail(Code::kInvalidArgument, "%s: %d ranks; this library makes communicators of 1 to %d", function,
                ranks, most);
  }
  if (rank < 0 || rank >= ranks) {
    return fail(Code::kInvalidArgument, "%s: rank %d is not one of 0 to %d", function, rank, ranks - 1);
  }
  auto parsed = parseConfig(config, Config{true, "", device.value()});
  if (!parsed.ok()) return parsed.status();
  std::vector<bootstrap::UniqueId> others;
  for (const ncclUniqueId& id : ids.subspan(1)) others.push_back(fromNccl(id));
  const Spare spare = others.empty() ? nullptr : std::make_shared<const SpareIds>(std::move(others));
  auto communicator =
      std::make_shared<Communicator>(rank, ranks, fromNccl(ids[0]), std::move(parsed.value()));
  return launch(std::move(communicator), slot, spare);
}

// The device of one rank of ncclCommInitAll.
Result<int> deviceFor(int rank, int count, const int* list) {
  const auto on = communicator::usesDevices();
  if (!on.ok()) return on.status();
  if (!on.value()) return communicator::kHostDevice;
  const int devices = platform::cuda::deviceCount();
  const auto shared = parameters::sharedDevice();
  if (!shared.ok()) return shared.status();
  const int device = list != nullptr ? list[rank] : shared.value() > 0 ? rank % devices : rank;
  if (device >= 0 && device < devices) return device;
  return fail(Code::kInvalidArgument,
              "ncclCommInitAll: there is no GPU %d for rank %d of %d: this process sees 0 to %d", device,
              rank, count, devices - 1);
}

Status initAll(ncclComm_t* slots, int count, const int* list) {
  if (slots == nullptr || count < 1 || count > stretto::kMaxRanks) {
    return fail(Code::kInvalidArgument, "ncclCommInitAll: %d communicators in %p; 1 to %d are possible",
                count, static_cast<void*>(slots), stretto::kMaxRanks);
  }
  std::vector<int> devices;
  for (int rank = 0; rank < count; ++rank) {
    const auto device = deviceFor(rank, count, list);
    if (!device.ok()) return device.status();
    devices.push_back(device.value());
  }
  auto id = bootstrap::Service::createSession();
  if (!id.ok()) return id.status();
  Group::current().begin();
  for (int rank = 0; rank < count; ++rank) {
    const Config config{true, "", devices[static_cast<size_t>(rank)]};
    const Status status =
        launch(std::make_shared<Communicator>(rank, count, id.value(), config), &slots[rank]);
    if (!status.ok()) Group::current().poison(status);
  }
  return Group::current().end();
}

struct Wanted {
  int colour;
  int key;
  Config config;
};

// A rank without colour helps the others to find their seats.
Status splitNothing(const Shared& parent, const Wanted& wanted) {
  auto find = parent->children().split(parent, wanted.colour, wanted.key);
  if (wanted.config.blocking) return find({}).status();
  parent->queue().worker()->submit([find = std::move(find)] { (void)find({}); });
  return Status{Code::kInProgress};
}

// All ranks take part, so several ranks of one thread must do it at the same time: at the end of the group,
// the splits of one communicator in the order of the calls.
Status split(const Shared& parent, const Wanted& wanted, ncclComm_t* slot) {
  const auto run = [parent, wanted, slot] {
    if (wanted.colour < 0) return splitNothing(parent, wanted);
    return launch(std::make_shared<Communicator>(
                      parent, parent->children().split(parent, wanted.colour, wanted.key), wanted.config),
                  slot);
  };
  if (!Group::current().open()) return run();
  Group::current().addJob(parent.get(), wanted.config.device, run);
  return kOkStatus;
}

Status shrink(Communicator* parent, std::vector<int> leave, ncclComm_t* slot, const ncclConfig_t* config,
              int flags) {
  std::sort(leave.begin(), leave.end());
  const auto isRank = [&](int rank) { return rank >= 0 && rank < parent->self().ranks(); };
  const bool unique = std::adjacent_find(leave.begin(), leave.end()) == leave.end();
  if (leave.empty() || !unique || !std::all_of(leave.begin(), leave.end(), isRank)) {
    return fail(Code::kInvalidArgument,
                "ncclCommShrink: the ranks to leave out must be some of 0 to %d, each once",
                parent->self().ranks() - 1);
  }
  if (std::binary_search(leave.begin(), leave.end(), parent->self().rank())) {
    return fail(Code::kInvalidArgument, "ncclCommShrink: rank %d is in the list, so it must not call",
                parent->self().rank());
  }
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
    return fail(Code::kInvalidArgument,
                "ncclCommShrink: %#x is neither NCCL_SHRINK_DEFAULT nor NCCL_SHRINK_ABORT", flags);
  }
  auto parsed = parseConfig(config, parent->self().config());
  if (!parsed.ok()) return parsed.status();
  if (flags == NCCL_SHRINK_ABORT) {
    parent->revoke();
  } else {
    STRETTO_TRY(parent->mayCall());
  }
  auto find = parent->children().shrink(leave);
  if (!find.ok()) return find.status();
  return launch(std::make_shared<Communicator>(parent->shared_from_this(), std::move(find.value()),
                                               std::move(parsed.value())),
                slot);
}

struct Growth {
  int ranks;
  const ncclUniqueId* id;  // null on all ranks of the parent but one
  int rank;
};

// A rank of the parent.
Status grow(const Shared& parent, const Growth& wanted, ncclComm_t* slot, const ncclConfig_t* config) {
  const int before = parent->self().ranks();
  const int most = parent->self().onDevice() ? bootstrap::kMaxRanks : kMostRanks;
  if (wanted.rank != -1) {
    return fail(Code::kInvalidArgument,
                "ncclCommGrow: a rank of the communicator keeps its number and passes -1, not %d",
                wanted.rank);
  }
  if (wanted.ranks <= before || wanted.ranks > most) {
    return fail(Code::kInvalidArgument, "ncclCommGrow: from %d ranks to %d; it can be %d to %d", before,
                wanted.ranks, before + 1, most);
  }
  STRETTO_TRY(parent->mayCall());
  auto parsed = parseConfig(config, parent->self().config());
  if (!parsed.ok()) return parsed.status();
  const auto run = [parent, ranks = wanted.ranks, slot, own = parsed.value(),
                    id = wanted.id == nullptr ? bootstrap::UniqueId{} : fromNccl(*wanted.id),
                    gives = wanted.id != nullptr] {
    auto find = parent->children().grow(parent, ranks, gives ? &id : nullptr);
    return launch(std::make_shared<Communicator>(parent, std::move(find), own), slot);
  };
  if (!Group::current().open()) return run();
  Group::current().addJob(parent.get(), parent->self().config().device, run);
  return kOkStatus;
}

enum class Leaves { kInPeace, kAtOnce };

// One that is still being made has no peace to leave in: its peers would wait for it.
Status end(const char* function, ncclComm_t handle, Leaves leaves) {
  bool atOnce = leaves == Leaves::kAtOnce;
  {
    const InUse communicator(handle, function);
    if (communicator == nullptr) return Status{Code::kInvalidArgument};
    STRETTO_TRY(communicator->self().mayTouch());
    atOnce = atOnce || communicator->health().state() == communicator::State::kInitialising;
  }
  const EndedCommunicator communicator = endHandle(handle);
  if (!communicator) return fail(Code::kInvalidArgument, "%s: the communicator was destroyed", function);
  Status status = kOkStatus;
  if (atOnce) {
    communicator->abort();
  } else {
    status = communicator->finalise();
    communicator->release();
  }
  return status;
}

}  // namespace
}  // namespace stretto::api

using stretto::Code;
using stretto::Status;
using namespace stretto::api;
using stretto::communicator::Communicator;

STRETTO_API(ncclGetUniqueId)
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) try {
  STRETTO_PASS_ON_CALLER(ncclGetUniqueId, (uniqueId));
  return finish(makeId("ncclGetUniqueId", uniqueId));
} catch (...) {
  return stretto::api::caught("ncclGetUniqueId");
}

STRETTO_API(ncclCommInitRank)
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) try {
  STRETTO_PASS_ON_CALLER(ncclCommInitRank, (comm, nranks, commId, rank));
  return finish(initRank("ncclCommInitRank", comm, nranks, {&commId, 1}, rank, nullptr));
} catch (...) {
  return stretto::api::caught("ncclCommInitRank");
}

STRETTO_API(ncclCommInitRankConfig)
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) try {
  STRETTO_PASS_ON_CALLER(ncclCommInitRankConfig, (comm, nranks, commId, rank, config));
  return finish(initRank("ncclCommInitRankConfig", comm, nranks, {&commId, 1}, rank, config));
} catch (...) {
  return stretto::api::caught("ncclCommInitRankConfig");
}

extern "C" STRETTO_EXPORTED ncclResult_t strettoCommInitHostRank(ncclComm_t* comm, int nranks,
                                                                 ncclUniqueId commId, int rank,
                                                                 ncclConfig_t* config) try {
  return finish(initRank("strettoCommInitHostRank", comm, nranks, {&commId, 1}, rank, config,
                         stretto::communicator::kHostDevice));
} catch (...) {
  return stretto::api::caught("strettoCommInitHostRank");
}

STRETTO_API(ncclCommInitRankScalable)
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) try {
  STRETTO_PASS_ON_CALLER(ncclCommInitRankScalable, (newcomm, nranks, myrank, nId, commIds, config));
  if (commIds == nullptr || nId < 1 || nId > nranks) {
    return finish(stretto::fail(Code::kInvalidArgument,
                                "ncclCommInitRankScalable: %d unique ids for %d ranks", nId, nranks));
  }
  // One host can answer all the ranks that a communicator may have, so the first name serves everybody.
  return finish(initRank("ncclCommInitRankScalable", newcomm, nranks, {commIds, static_cast<size_t>(nId)},
                         myrank, config));
} catch (...) {
  return stretto::api::caught("ncclCommInitRankScalable");
}

STRETTO_API(ncclCommInitAll)
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) try {
  STRETTO_PASS_ON_CALLER(ncclCommInitAll, (comm, ndev, devlist));
  return toResult(initAll(comm, ndev, devlist));
} catch (...) {
  return stretto::api::caught("ncclCommInitAll");
}

STRETTO_API(ncclCommSplit)
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) try {
  STRETTO_PASS_ON(ncclCommSplit, comm, (comm, color, key, newcomm, config));
  const InUse parent(comm, "ncclCommSplit");
  if (parent == nullptr) return finish(Status{Code::kInvalidArgument});
  if (newcomm == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
    return finish(stretto::fail(
        Code::kInvalidArgument, "ncclCommSplit: %s",
        newcomm == nullptr ? "newcomm is null" : "a color is 0 or more, or NCCL_SPLIT_NOCOLOR"));
  }
  *newcomm = nullptr;
  auto parsed = parseConfig(config, parent->self().config());
  if (!parsed.ok()) return finish(parsed.status());
  const auto state = parent->health().state();
  if (state != stretto::communicator::State::kRevoked) {
    if (const Status status = parent->mayCall(); !status.ok()) return finish(status);
  }
  return finish(split(parent->shared_from_this(), {color, key, std::move(parsed.value())}, newcomm));
} catch (...) {
  return stretto::api::caught("ncclCommSplit");
}

STRETTO_API(ncclCommShrink)
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) try {
  STRETTO_PASS_ON(ncclCommShrink, comm,
                  (comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
  const InUse parent(comm, "ncclCommShrink");
  if (parent == nullptr) return finish(Status{Code::kInvalidArgument});
  if (newcomm == nullptr || excludeRanksList == nullptr || excludeRanksCount < 1) {
    return finish(stretto::fail(Code::kInvalidArgument, "ncclCommShrink: newcomm %p, list %p of %d ranks",
                                static_cast<void*>(newcomm), static_cast<void*>(excludeRanksList),
                                excludeRanksCount));
  }
  *newcomm = nullptr;
  std::vector<int> leave(excludeRanksList, excludeRanksList + excludeRanksCount);
  return finish(shrink(parent, std::move(leave), newcomm, config, shrinkFlags));
} catch (...) {
  return stretto::api::caught("ncclCommShrink");
}

STRETTO_API(ncclCommGetUniqueId)
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId) try {
  STRETTO_PASS_ON(ncclCommGetUniqueId, comm, (comm, uniqueId));
  const InUse communicator(comm, "ncclCommGetUniqueId");
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  if (const Status status = communicator->mayCall(); !status.ok()) return finish(status);
  return finish(nameGrowth(*communicator, uniqueId));
} catch (...) {
  return stretto::api::caught("ncclCommGetUniqueId");
}

STRETTO_API(ncclCommGrow)
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config) try {
  STRETTO_PASS_ON(ncclCommGrow, comm, (comm, nRanks, uniqueId, rank, newcomm, config));
  if (newcomm == nullptr)
    return finish(stretto::fail(Code::kInvalidArgument, "ncclCommGrow: newcomm is null"));
  *newcomm = nullptr;
  if (comm == nullptr && uniqueId == nullptr) {
    return finish(stretto::fail(Code::kInvalidArgument,
                                "ncclCommGrow: a rank that joins passes the id of ncclCommGetUniqueId"));
  }
  if (comm == nullptr) return finish(initRank("ncclCommGrow", newcomm, nRanks, {uniqueId, 1}, rank, config));
  const InUse parent(comm, "ncclCommGrow");
  if (parent == nullptr) return finish(Status{Code::kInvalidArgument});
  return finish(grow(parent->shared_from_this(), {nRanks, uniqueId, rank}, newcomm, config));
} catch (...) {
  return stretto::api::caught("ncclCommGrow");
}

STRETTO_API(ncclCommFinalize)
ncclResult_t ncclCommFinalize(ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclCommFinalize, comm, (comm));
  const InUse communicator(comm, "ncclCommFinalize");
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  if (const Status status = communicator->mayCall(); !status.ok()) return finish(status);
  if (communicator->foreign() != nullptr && Group::current().open()) {
    Group::current().addJob(communicator, communicator->self().config().device,
                            [kept = communicator->shared_from_this()] { return kept->startFinalise(); });
    return ncclSuccess;
  }
  return finish(communicator->startFinalise());
} catch (...) {
  return stretto::api::caught("ncclCommFinalize");
}

STRETTO_API(ncclCommDestroy)
ncclResult_t ncclCommDestroy(ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclCommDestroy, comm, (comm));
  if (comm == nullptr) return ncclSuccess;
  return finish(end("ncclCommDestroy", comm, Leaves::kInPeace));
} catch (...) {
  return stretto::api::caught("ncclCommDestroy");
}

STRETTO_API(ncclCommAbort)
ncclResult_t ncclCommAbort(ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclCommAbort, comm, (comm));
  if (comm == nullptr) return ncclSuccess;
  return finish(end("ncclCommAbort", comm, Leaves::kAtOnce));
} catch (...) {
  return stretto::api::caught("ncclCommAbort");
}

STRETTO_API(ncclCommRevoke)
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) try {
  STRETTO_PASS_ON(ncclCommRevoke, comm, (comm, revokeFlags));
  const InUse communicator(comm, "ncclCommRevoke");
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  if (revokeFlags != NCCL_REVOKE_DEFAULT) {
    return finish(stretto::fail(Code::kInvalidArgument,
                                "ncclCommRevoke: flags must be NCCL_REVOKE_DEFAULT, not %#x", revokeFlags));
  }
  if (const Status status = communicator->self().mayTouch(); !status.ok()) return finish(status);
  communicator->revoke();
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclCommRevoke");
}

STRETTO_API(ncclCommGetAsyncError)
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) try {
  STRETTO_PASS_ON(ncclCommGetAsyncError, comm, (comm, asyncError));
  const InUse communicator(comm, "ncclCommGetAsyncError");
  if (communicator == nullptr || asyncError == nullptr) {
    return finish(
        stretto::fail(Code::kInvalidArgument, "ncclCommGetAsyncError: comm or asyncError is not valid"));
  }
  if (const Status status = communicator->self().mayTouch(); !status.ok()) return finish(status);
  const Status seen = communicator->self().onDevice() ? communicator->poll() : stretto::kOkStatus;
  const Status kept = communicator->error(nullptr);
  *asyncError = toResult(kept.ok() && seen.code == Code::kRemote ? seen : kept);
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclCommGetAsyncError");
}

namespace {

// The three questions that have a number for an answer.
template <typename Answer>
ncclResult_t answer(const char* function, ncclComm_t comm, int* number, Answer ask) {
  const InUse communicator(comm, function);
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  if (number == nullptr)
    return finish(stretto::fail(Code::kInvalidArgument, "%s: no place for the answer", function));
  if (!communicator->self().seated()) return finish(Status{Code::kInProgress});  // a child that is being made
  *number = ask(*communicator);
  return ncclSuccess;
}

}  // namespace

STRETTO_API(ncclCommCount)
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) try {
  STRETTO_PASS_ON(ncclCommCount, comm, (comm, count));
  return answer("ncclCommCount", comm, count, [](auto& communicator) { return communicator.self().ranks(); });
} catch (...) {
  return stretto::api::caught("ncclCommCount");
}

STRETTO_API(ncclCommCuDevice)
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) try {
  STRETTO_PASS_ON(ncclCommCuDevice, comm, (comm, device));
  return answer("ncclCommCuDevice", comm, device,
                [](auto& communicator) { return std::max(0, communicator.self().config().device); });
} catch (...) {
  return stretto::api::caught("ncclCommCuDevice");
}

STRETTO_API(ncclCommUserRank)
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) try {
  STRETTO_PASS_ON(ncclCommUserRank, comm, (comm, rank));
  return answer("ncclCommUserRank", comm, rank,
                [](auto& communicator) { return communicator.self().rank(); });
} catch (...) {
  return stretto::api::caught("ncclCommUserRank");
}
