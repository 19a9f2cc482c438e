// The one way of every operation: validated (submit), remembered by a group or given its turn, and run in it.
#include <algorithm>
#include <utility>

#include "communicator/core/communicator.hpp"
#include "communicator/core/group.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/turn.hpp"

namespace stretto::communicator {
namespace {

// Validated: remembered by the group, run here, or enqueued.
Status hand(Communicator& communicator, const Operation& operation,
            const std::shared_ptr<executors::host::Stream>& stream) {
  if (Group::current().open()) {
    Group::current().add(communicator.shared_from_this(), operation, stream);
    return kOkStatus;
  }
  const Identity& self = communicator.self();
  // At once on this thread: the commonest case, without an allocation.
  if (stream == nullptr && (self.config().blocking || self.onDevice()))
    return communicator.run({&operation, 1}, communicator.queue().take());
  return communicator.start({operation}, stream);
}

// Tells a profiler plugin as well. A call outside of a group is a group of its own. Out of line: only one
// operation of many may be told of.
[[gnu::noinline]] Status submitProfiled(Communicator& communicator, const Operation& called,
                                        Profile::Counted counted,
                                        const std::shared_ptr<executors::host::Stream>& stream) {
  Operation operation = called;
  const auto go = [&] { return hand(communicator, operation, stream); };
  Group& group = Group::current();
  if (group.open()) {
    communicator.submission().journal().profile().call(operation, counted, group.profiled(),
                                                       group.depth() + 1);
    return go();
  }
  ProfiledGroup alone;
  alone.closes(communicator.submission().journal().profile().call(operation, counted, alone, 1));
  return go();
}

// Somebody watches this process, or CUDA is in it; out of line, so that an operation that nobody watches has
// none of it.
[[gnu::noinline]] Status submitWatched(Communicator& communicator, const Operation& operation,
                                       const std::shared_ptr<executors::host::Stream>& stream) {
  if (watch::watches(watch::kDeviceMemory) && !communicator.self().onDevice()) [[unlikely]]
    STRETTO_TRY(refuseDeviceMemory(operation, communicator.self().rank(), communicator.self().ranks()));
  const Profile::Counted counted = communicator.submission().journal().profile().count(operation);
  if (counted.reported && observe::profiler::mask() != 0) [[unlikely]]
    return submitProfiled(communicator, operation, counted, stream);
  return hand(communicator, operation, stream);
}

}  // namespace

Status submit(Communicator& communicator, const Operation& operation,
              const std::shared_ptr<executors::host::Stream>& stream) {
  if (const Status status = communicator.mayCall(); !status.ok()) [[unlikely]] {
    return communicator.health().refuse(operation, status);
  }
  STRETTO_TRY(validate(operation, communicator.self().rank(), communicator.self().ranks(),
                       communicator.self().onDevice()));
  if (watch::anybody()) [[unlikely]] {
    return submitWatched(communicator, operation, stream);
  }
  return hand(communicator, operation, stream);
}

Status submitOneSided(Communicator& communicator, std::vector<Operation> operations,
                      const std::shared_ptr<executors::host::Stream>& stream) {
  if (const Status status = communicator.mayCall(); !status.ok())
    return communicator.health().refuse(operations[0], status);
  if (!communicator.windows().areOfOneHost() || communicator.foreign() != nullptr) {
    return fail(Code::kInvalidUsage, "%s: one-sided operations between hosts are not there yet",
                nameOf(operations[0].collective));
  }
  const Identity& self = communicator.self();
  for (const Operation& operation : operations) {
    STRETTO_TRY(communicator.windows().check(operation));
    if (!self.onDevice()) STRETTO_TRY(refuseDeviceMemory(operation, self.rank(), self.ranks()));
  }
  if (!Group::current().open()) return communicator.start(std::move(operations), stream);
  for (const Operation& operation : operations)
    Group::current().add(communicator.shared_from_this(), operation, stream);
  return kOkStatus;
}

Status Submission::run(std::span<const Operation> operations) {
  if (Profile::anyReported(operations) && journal_.profile().on()) [[unlikely]]
    return runProfiled(operations);
  return runTurn(operations);
}

Status Submission::runProfiled(std::span<const Operation> operations) {
  journal_.profile().beginTurn(operations);
  const Status status = runTurn(operations);
  journal_.profile().endTurn();
  return status;
}

// In both of its callers, so that what runs unwatched makes no call for being possibly watched.
[[gnu::always_inline]] inline Status Submission::runTurn(std::span<const Operation> operations) {
  if (onDevice_) STRETTO_TRY(device_.mayLaunch(operations));
  if (operations.size() == 1) {
    if (operations[0].isCollective()) return runCollective(operations[0]);
    if (operations[0].isTransfer()) return runTransfers(operations[0], operations);
  }
  return runSeveral(operations);
}

Status Submission::runSeveral(std::span<const Operation> operations) {
  const auto transfer = std::find_if(operations.begin(), operations.end(),
                                     [](const Operation& operation) { return operation.isTransfer(); });
  const bool anyOneSided = std::any_of(operations.begin(), operations.end(),
                                       [](const Operation& operation) { return operation.isOneSided(); });
  if (anyOneSided) STRETTO_TRY(runOneSided(operations, false));
  if (transfer != operations.end()) STRETTO_TRY(runTransfers(*transfer, operations));
  if (onDevice_) STRETTO_TRY(device_.runTogether(operations));
  for (const Operation& operation : operations) {
    if (operation.isCollective() && !onDevice_) STRETTO_TRY(runCollective(operation));
  }
  return anyOneSided ? runOneSided(operations, true) : kOkStatus;
}

Status Submission::runCollective(const Operation& operation) {
  Prepared* prepared = nullptr;
  if (const Status status = plans_.prepare(operation, prepared); !status.ok()) [[unlikely]] {
    return journal_.refusePlan(operation, status);
  }
  if (onDevice_) return device_.run(operation, *prepared);
  const Running running = journal_.enter(operation, *prepared);
  if (operation.count == 0) return journal_.conclude(running, kOkStatus);
  if (running.watched && host_.isSpread()) [[unlikely]]
    return runSpread(running, *prepared);
  return journal_.conclude(running, host_.run(running, *prepared, journal_.counters()));
}

// Over hosts, with somebody who may want to hear of each chunk. Out of line, so that runCollective() has
// nothing of it but the branch.
[[gnu::noinline]] Status Submission::runSpread(const Running& running, Prepared& prepared) {
  Profile& profile = journal_.profile();
  links::net::ChunkWatch* const watch =
      profile.on() ? profile.beginChunks(*running.operation, host_.farWays()) : nullptr;
  const Status status = [&] {
    const HostEngine::Watching watching(host_, watch);
    return host_.run(running, prepared, journal_.counters());
  }();
  return journal_.conclude(running, status);
}

Status Submission::runTransfers(const Operation& first, std::span<const Operation> operations) {
  if (onDevice_) return device_.runTransfers(first, operations);
  Running running = journal_.enterUnnumbered(first);
  running.watched = Profile::anyReported(operations);
  return journal_.conclude(running, host_.runTransfers(operations, running.watched, journal_.profile()));
}

Status Submission::runOneSided(std::span<const Operation> operations, bool waits) {
  for (const Operation& operation : operations) {
    if (!operation.isOneSided() || (operation.collective == Collective::kWaitSignal) != waits) continue;
    const Running running = journal_.enterUnnumbered(operation);
    STRETTO_TRY(onDevice_ ? device_.runOneSided(running)
                          : journal_.conclude(running, host_.runOneSided(operation)));
  }
  return kOkStatus;
}

void Submission::closes() {
  host_.closes();
  if (onDevice_) device_.closes();
  journal_.closes();
  plans_.forget();
}

Result<planner::Plan> Submission::predict(const Operation& operation) {
  const Hold hold(queue_);
  if (!hold.holds()) return health_.whyLetGo();
  return plans_.predict(operation);
}

Result<std::string> Submission::explain(const planner::Request& request) {
  const Hold hold(queue_);
  if (!hold.holds()) return health_.whyLetGo();
  return plans_.explain(request);
}

Status Submission::force(const char* collective, const char* algorithm, const char* protocol,
                         size_t chunkBytes, int blocks) {
  STRETTO_TRY(queue_.self().mayTouch());
  const Turn turn(queue_, queue_.take());
  if (!turn.holds()) return health_.whyLetGo();
  return plans_.force(collective, algorithm, protocol, chunkBytes, blocks);
}

Result<bool> Submission::probe(int peer) {
  const Identity& self = queue_.self();
  if (onDevice_)
    return fail(Code::kInvalidUsage, "rank %d is on a GPU, where no message can be probed", self.rank());
  if (peer < 0 || peer >= self.ranks() || peer == self.rank()) {
    return fail(Code::kInvalidArgument, "rank %d of %d probes for a message of rank %d", self.rank(),
                self.ranks(), peer);
  }
  const Hold hold(queue_);
  if (!hold.holds()) return health_.whyLetGo();
  STRETTO_TRY(health_.usable());
  if (!hold.isDue()) return false;  // what is under way may take what has come
  return host_.probe(peer);
}

Status Communicator::start(std::vector<Operation> operations,
                           std::shared_ptr<executors::host::Stream> stream) {
  const bool blocking = self_.config().blocking;
  if (stream == nullptr && (blocking || self_.onDevice())) return run(operations, queue_.take());
  if (stream == nullptr) stream = queue_.worker();
  const Profile::HandOver handOver(submission_.journal().profile(), operations);
  const uint64_t turn = queue_.take();
  try {
    stream->submit([self = shared_from_this(), turn, work = std::move(operations)] {
      const Status status = self->run(work, turn);
      // What could not even begin, say without a plan, has no call to say so.
      Health& health = self->health_;
      if (!status.ok() && health.isReady()) health.markBroken(status, State::kFailed, lastError());
    });
  } catch (...) {
    queue_.complete(turn);
    throw;
  }
  return Status{blocking ? Code::kOk : Code::kInProgress};
}

Status Communicator::run(std::span<const Operation> operations, uint64_t number) {
  const Turn turn(queue_, number);
  if (const Status status = health_.isReady() ? kOkStatus : health_.usable(); !status.ok()) [[unlikely]]
    return turn.mine() ? health_.refuse(operations[0], status) : status;  // what runs is named first
  if (!turn.mine()) return fail(Code::kAborted, "rank %d: aborted before the operation began", self_.rank());
  if (foreign() != nullptr) return handedOver_.run(operations, submission_.journal());
  return submission_.run(operations);
}

}  // namespace stretto::communicator
