// A communicator from its first word with the others to its end.
#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "base/unknown_variables.hpp"
#include "bootstrap/service.hpp"
#include "communicator/core/apart.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/machine.hpp"
#include "communicator/core/turn.hpp"
#include "platform/clock.hpp"
#include "primitives/host/reduce.hpp"

namespace stretto::communicator {
namespace {

// All ranks meet. Whatever waits for them asks `mayWait`.
Status join(const Identity& self, ControlPlane& plane, PeerEvents& events, bootstrap::StopCheck mayWait) {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  bootstrap::JoinOptions options;
  options.version = kLibraryVersion;
  options.onPeerLost = [&events](const bootstrap::PeerLoss& loss) { events.lost(loss); };
  options.onNudged = [&events](int rank, std::span<const uint8_t> message) { events.heard(rank, message); };
  auto joined = bootstrap::Membership::join(self.id(), self.rank(), self.ranks(), timeout.value(),
                                            std::move(mayWait), std::move(options));
  if (joined.ok()) plane.join(std::move(joined.value()));
  return joined.status();
}

// What the ranks compare when they connect.
Result<ConnectRequest> requestOf(const Identity& self, const Plans& plans) {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  const auto deterministic = parameters::kDeterministic.flag();
  const auto slotBytes = slotBytesFor(self.ranks());
  if (!timeout.ok()) return timeout.status();
  if (!deterministic.ok()) return deterministic.status();
  if (!slotBytes.ok()) return slotBytes.status();
  ConnectRequest request;
  request.rank = self.rank();
  request.ranks = self.ranks();
  request.slotBytes = slotBytes.value();
  request.linkChunk = kLinkChunk;
  request.tableHash = plans.tableHash();
  // The long one last: what does not fit is left out.
  request.forced = parameters::kRings.text() + " " + parameters::kRingGather.text() + " " +
                   parameters::kProto.text() + " " + parameters::kAlgo.text();
  request.deterministic = deterministic.value();
  request.onDevice = self.onDevice();
  request.timeoutSeconds = timeout.value();
  return request;
}

// Windows in host memory, which ranks on GPUs have as well, and the engine that uses them. Ranks that cannot
// be connected are no error: the connections say why.
Status connectHosts(const Identity& self, ControlPlane& plane, Submission& submission,
                    Connections& connections) {
  Plans& plans = submission.plans();
  planner::Machine& machine = plans.machine();
  const auto request = requestOf(self, plans);
  if (!request.ok()) return request.status();
  STRETTO_TRY(connect(plane.membership(), request.value(), connections, machine));
  if (!connections.apart.empty()) return kOkStatus;
  machine.hostLinks = plans.hostLinks();
  STRETTO_TRY(addCacheSize(machine));
  STRETTO_TRY(addRings(machine));
  HostEngine::Setup setup;
  setup.layout = {static_cast<uint32_t>(self.ranks()), request.value().slotBytes, request.value().linkChunk};
  setup.linkChunk = machine.linkChunk;
  setup.cores = machine.cores;
  if (!machine.sameProcess && machine.hosts == 1) setup.nudge = [&plane] { plane.nudge(); };
  setup.ask = [&plane](const RankSet& peers) { plane.show(peers); };
  // On the thread that runs the operation.
  setup.waits = [&flight = submission.journal().flight()](WaitStage stage, int peer) {
    if (stage == WaitStage::kLate) return flight.late(flight.latest(), peer);
    flight.waiting(flight.latest(), stage == WaitStage::kSleeps ? peer : -1);
  };
  STRETTO_TRY(submission.host().opens(connections, std::move(setup)));
  plans.opens(self.ranks(), nullptr, submission.host().isSpread());
  plane.opens();
  return kOkStatus;
}

// On how many hosts the ranks are, for a profiler plugin.
int hostsOf(const bootstrap::Membership& membership) {
  std::set<std::string> hosts;
  for (const bootstrap::MemberInfo& member : membership.members()) hosts.insert(member.host);
  return static_cast<int>(hosts.size());
}

void logReady(const Identity& self, const Counters& counters) {
  STRETTO_LOG(kInfo, kInit, "rank %d of %d ready in %.2f ms (bootstrap %.2f, connect %.2f)", self.rank(),
              self.ranks(), static_cast<double>(counters.initNanoseconds) * 1e-6,
              static_cast<double>(counters.bootstrapNanoseconds) * 1e-6,
              static_cast<double>(counters.connectNanoseconds) * 1e-6);
}

// A child's kernels may run beside those of all the parent's ranks.
Config besideOthersOf(Communicator& parent, Config config) {
  config.kernelsAtOnce = std::max(config.kernelsAtOnce, parent.submission().device().kernelsAtOnce());
  return config;
}

}  // namespace

Communicator::Communicator(int rank, int ranks, const bootstrap::UniqueId& id, Config config)
    : Communicator(rank, ranks, &id, Origin(), std::move(config)) {}

Communicator::Communicator(std::shared_ptr<Communicator> parent, FindSeat findSeat, Config config)
    : Communicator(-1, 0, nullptr, Origin(parent, std::move(findSeat)),
                   besideOthersOf(*parent, std::move(config))) {}

// The last turn may end on the worker, which release() ends: so that runs apart.
Communicator::Communicator(int rank, int ranks, const bootstrap::UniqueId* id, Origin origin, Config config)
    : self_(rank, ranks, id, std::move(config)),
      plane_(self_, connections_),
      submission_(self_, plane_, health_, queue_, connections_),
      health_(self_, plane_, submission_.journal().flight(),
              [this](uint32_t word) {
                submission_.device().watchdog().abort(word);
                queue_.wake();
              }),
      queue_(self_, health_, submission_.journal().profile(),
             [this] {
               (void)startApart(self_.rank(), self_.config().device,
                                "to free a communicator whose last operation ended after its abort",
                                [self = shared_from_this()] { self->release(); });
             }),
      handedOver_(self_, plane_, health_),
      events_(self_, plane_, health_, submission_, connections_),
      origin_(std::move(origin)),
      children_(self_, plane_, health_, queue_),
      windows_(self_, plane_, health_, queue_, submission_),
      resources_(self_, health_, queue_, submission_, connections_) {}

// First what calls the other parts from threads of its own.
Communicator::~Communicator() {
  queue_.endWorker();
  plane_.leave();
}

Status Communicator::initialise() {
  const std::lock_guard life(lifeMutex_);
  warnOfUnknownVariables();
  if (!self_.onDevice()) lookForDeviceMemory();
  Counters& counters = submission_.journal().counters();
  const uint64_t began = platform::monotonicNanoseconds();
  Status status = connectAll();
  const Origin origin = std::exchange(origin_, {});
  counters.initNanoseconds = platform::monotonicNanoseconds() - began;
  if (status.ok() && (health_.advance(State::kReady) || health_.state() == State::kRevoked)) {
    logReady(self_, counters);
    return kOkStatus;
  }
  // Failed, or aborted or struck by a loss meanwhile: the others must not take this rank for a member.
  if (status.ok()) status = health_.usable();
  health_.markBroken(status, State::kFailed, lastError());
  if (self_.seated()) origin.giveUp(self_.number());
  plane_.sayGoodbye(bootstrap::Leaving::kAborted, health_.farewell("could not connect"));
  if (origin.seat().opened) bootstrap::Service::closeSession(self_.id());  // if nobody has come
  if (origin.seat().named) bootstrap::Service::failSession(self_.id(), self_.rank(), lastError());
  return status;
}

Status Communicator::connectAll() {
  const auto mayWait = [this] {
    STRETTO_TRY(health_.whyAborted());
    return origin_.holds(self_.number(), plane_.hasJoined());
  };
  if (!self_.seated()) {
    STRETTO_TRY(origin_.findSeat(mayWait));
    self_.take(origin_.seat());
  }
  STRETTO_TRY(selectCpuLevel());
  STRETTO_TRY(submission_.plans().load());
  Journal& journal = submission_.journal();
  const uint64_t start = platform::monotonicNanoseconds();
  if (const Status status = join(self_, plane_, events_, mayWait); !status.ok())
    return origin_.reasonOf(status, [this] { return health_.isAborted(); });
  const uint64_t joined = platform::monotonicNanoseconds();
  journal.counters().bootstrapNanoseconds = joined - start;
  const bool fits = self_.ranks() <= (self_.onDevice() ? kMaxRanks : kMostRanks);
  if (fits) STRETTO_TRY(connectHosts(self_, plane_, submission_, connections_));
  // A rank may have been lost, or this one aborted, before there was a window to say so in.
  uint32_t none = 0;
  WindowHeader* const header = plane_.header();
  if (header != nullptr && health_.isAborted())
    std::atomic_ref(header->abort).compare_exchange_strong(none, health_.abortWord());
  if (self_.onDevice() && header != nullptr) {
    STRETTO_TRY(submission_.device().opens([weak = weak_from_this()] {
      const std::shared_ptr<Communicator> self = weak.lock();
      return self != nullptr && self->submission_.device().watchdog().watch();
    }));
  }
  if (fits && connections_.apart.empty()) {
    STRETTO_TRY(journal.opens(kLibraryVersion));
    // Last of what may fail, so that a plugin hears of communicators that work. Of one that was handed over
    // NCCL tells its own.
    STRETTO_TRY(journal.opensProfile(hostsOf(plane_.membership())));
  } else {
    // Its ranks have not told each other on which hosts they are.
    if (!fits)
      STRETTO_TRY(mayGoInPlainText(plane_.membership().encryption(),
                                   "it has more than " + std::to_string(kMaxRanks) + " ranks"));
    STRETTO_TRY(handedOver_.begin(connections_.apart));
  }
  journal.counters().connectNanoseconds = platform::monotonicNanoseconds() - joined;
  return kOkStatus;
}

void Communicator::release() {
  children_.endNames(health_.farewell("has ended the communicator that was to grow"));
  if (!queue_.close()) return;  // then whoever ends the last operation comes here
  queue_.endWorker();  // before the lock: the worker may be making the communicator, and ends that at the
                       // abort's word
  std::unique_lock life(lifeMutex_, std::try_to_lock);
  constexpr int kEndOfFinalise = 1000;  // milliseconds; the thread sanitizer knows no timed mutexes
  for (int i = 0; i < kEndOfFinalise && !life.owns_lock(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)life.try_lock();
  }
  if (!life.owns_lock()) return;
  handedOver_.end();
  plane_.leave();
  plane_.ends();
  submission_.closes();
  connections_ = {};
}

Status Communicator::whyNotCall() const {
  STRETTO_TRY(health_.usable());
  if (resources_.isSuspended()) {
    return fail(Code::kInvalidUsage, "rank %d: the communicator is suspended: call ncclCommResume first",
                self_.rank());
  }
  return fail(
      Code::kInvalidUsage,
      "rank %d: the communicator is being finalised: after ncclCommFinalize only ncclCommGetAsyncError, "
      "ncclCommDestroy and ncclCommAbort may follow",
      self_.rank());
}

Status Communicator::error(std::string* text) const {
  const Status first = health_.first(text);
  if (!first.ok()) return first;
  const bool busy = health_.state() == State::kInitialising || queue_.takesNoCalls() ||
                    (!self_.config().blocking && !queue_.quiet());
  return Status{busy ? Code::kInProgress : Code::kOk};
}

Status Communicator::poll() {
  // A forked child has the parent's locks as they were.
  if (!self_.isOfThisProcess()) [[unlikely]] {
    return health_.usable();
  }
  if (foreign() != nullptr) return handedOver_.poll();
  LaunchWatchdog& watchdog = submission_.device().watchdog();
  if (!watchdog.isThere()) return kOkStatus;
  STRETTO_TRY(watchdog.look());
  return health_.state() == State::kReady ? kOkStatus : health_.usable();
}

Status Communicator::finalise() {
  if (health_.state() == State::kFinalised) return kOkStatus;
  // Bounded: every operation ends by its own deadline, and none can come any more.
  while (!queue_.quiet() && !queue_.awaitQuiet(1)) {
  }
  const std::lock_guard life(lifeMutex_);  // an abort by another thread lets go when this has seen it
  const bool onDevice = self_.onDevice();
  // Before the wait: kernels of this device may wait for a peer's that waits for what this rank never calls.
  if (health_.state() == State::kReady) {
    plane_.sayLeft(WindowHeader::kCallsOver);
  } else if (onDevice) {
    health_.notifyPeers("destroyed its communicator");
  }
  if (onDevice) plane_.nudge();
  const bool done = !onDevice || submission_.device().watchdog().finish();
  const bool healthy = health_.state() == State::kReady && health_.advance(State::kFinalised);
  if (healthy && done) plane_.sayLeft(WindowHeader::kGone);
  // On GPUs the proxy has said its own goodbye.
  if (healthy && submission_.host().isSpread()) connections_.far.front()->leave();
  if (healthy) {
    plane_.sayLastGoodbye(bootstrap::Leaving::kNormally);
  } else {
    plane_.sayLastGoodbye(health_.leaving(), health_.farewell("destroyed its communicator"));
  }
  return kOkStatus;
}

Status Communicator::startFinalise() {
  const auto finaliseAll = [](Communicator& self) {
    if (self.foreign() != nullptr) STRETTO_TRY(self.foreign()->finalise());
    return self.finalise();
  };
  if (self_.config().blocking) return finaliseAll(*this);
  queue_.takeNoCalls(true);
  queue_.worker()->submit([finaliseAll, self = shared_from_this()] {
    (void)finaliseAll(*self);
    self->queue_.takeNoCalls(false);
  });
  return Status{Code::kInProgress};
}

void Communicator::abort() {
  health_.advance(State::kAborted);
  submission_.journal().flight().setState(observe::FlightState::kAborted);
  health_.raiseAbort({Code::kAborted});
  handedOver_.abort();
  if (!queue_.awaitQuiet(0.4)) {
    STRETTO_LOG(kWarn, kInit, "rank %d: an operation still runs 0.4 s after the abort; its memory is kept",
                self_.rank());
  }
  health_.notifyPeers("called ncclCommAbort");
  release();
}

// An abort may come at the same time, and let go of what is written to here.
void Communicator::revoke() {
  const Hold hold(queue_);
  if (!hold.holds()) return;
  health_.markBroken({}, State::kRevoked, "");
  health_.stopOperations(abortWord({Code::kAborted}));
  handedOver_.abort();
  if (self_.onDevice()) plane_.nudge();  // peers wait in kernels, and see no word in host memory
}

}  // namespace stretto::communicator
