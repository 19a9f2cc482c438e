// A communicator from its first word with the others to its end.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>
#include <utility>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/parameters.hpp"
#include "base/unknown_variables.hpp"
#include "bootstrap/service.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/turn.hpp"
#include "communicator/handover/foreign.hpp"
#include "platform/clock.hpp"
#include "platform/fork.hpp"
#include "primitives/ending.hpp"
#include "primitives/host/reduce.hpp"
#include "topology/probe.hpp"

namespace stretto::communicator {
namespace {

// Slots take 4 MiB of a window whatever the number of ranks: two slots, two phases, one part per rank.
constexpr size_t kSlotBudget = size_t{4} << 20;
constexpr uint32_t kLinkChunk = 65536;

Result<uint32_t> slotBytesFor(int ranks) {
  size_t budget = kSlotBudget;
  if (parameters::kSlotBytes.isSet()) {
    const auto given = parameters::kSlotBytes.integer(65536, int64_t{1} << 30);
    if (!given.ok()) return given.status();
    budget = static_cast<size_t>(given.value());
  }
  const size_t each = budget / (WindowLayout::kSlots * kPhases * static_cast<size_t>(ranks));
  return static_cast<uint32_t>(std::max<size_t>(4096, each / 4096 * 4096));
}

// Spin while there is a core for everybody; give way at once when there is not.
Result<WaitPolicy> waitPolicy(int ranks, int cores) {
  const auto timeout = parameters::kTimeout.seconds(0.001, 1e7);
  if (!timeout.ok()) return timeout.status();
  const auto warnAfter = parameters::warnAfter();
  if (!warnAfter.ok()) return warnAfter.status();
  const auto late = parameters::flightLate();
  if (!late.ok()) return late.status();
  double spin = ranks <= cores ? 100 : 0;
  if (parameters::kSpin.isSet()) {
    const auto given = parameters::kSpin.integer(0, 1000000);
    if (!given.ok()) return given.status();
    spin = static_cast<double>(given.value());
  }
  WaitPolicy policy;
  policy.quickPolls = ranks <= cores ? 64 : 4;
  policy.spinTicks = static_cast<uint64_t>(spin * 1e-6 * platform::tickRate());
  policy.yields = 100;
  policy.timeoutTicks = static_cast<uint64_t>(timeout.value() * platform::tickRate());
  if (std::isfinite(warnAfter.value())) {
    policy.warnTicks = static_cast<uint64_t>(warnAfter.value() * platform::tickRate());
  }
  if (std::isfinite(late.value()))
    policy.lateTicks = static_cast<uint64_t>(late.value() * platform::tickRate());
  return policy;
}

Status addCacheSize(planner::Machine& machine) {
  const auto facts = topology::facts();
  if (facts.ok()) machine.cacheBytes = topology::lastLevelCacheBytes(*facts.value());
  return facts.status();
}

Status addRings(planner::Machine& machine) {
  const auto rings = parameters::kRings.integer(1, algorithms::kMaxRings);
  if (!rings.ok()) return rings.status();
  if (rings.value() == 3) {
    return fail(Code::kInvalidUsage, "STRETTO_RINGS=3: there can be 1, 2 or 4");
  }
  machine.rings = static_cast<uint8_t>(rings.value());
  const std::string gather = parameters::kRingGather.text();
  for (const auto directions : {planner::Directions::kOneWay, planner::Directions::kBothWays}) {
    if (gather != nameOf(directions)) continue;
    machine.directions = directions;
    return kOkStatus;
  }
  return fail(Code::kInvalidUsage, "STRETTO_RING_GATHER=%s: write one_way or both_ways", gather.c_str());
}

}  // namespace

uint64_t Communicator::identityOf(const bootstrap::UniqueId& id) {
  Hash hash;
  hash.add(id.bytes, sizeof id.bytes);
  return hash.value();
}

Result<planner::Machine> machineOfThisHost(int ranks) {
  planner::Machine machine;
  const auto slotBytes = slotBytesFor(ranks);
  const auto deterministic = parameters::kDeterministic.flag();
  if (!slotBytes.ok()) return slotBytes.status();
  if (!deterministic.ok()) return deterministic.status();
  machine.slotBytes = slotBytes.value();
  machine.linkChunk = kLinkChunk;
  machine.cores = platform::usableCores();
  machine.reach = true;
  machine.deterministic = deterministic.value();
  STRETTO_TRY(addCacheSize(machine));
  STRETTO_TRY(addRings(machine));
  const auto devices = usesDevices();
  if (!devices.ok()) return devices.status();
  if (!devices.value()) return machine;
  const auto channels = parameters::kChannels.integer(1, kMostChannels);
  if (!channels.ok()) return channels.status();
  const auto gpus = gpusOfThisHost(ranks);
  if (!gpus.ok()) return gpus.status();
  STRETTO_TRY(describe(deviceShape(ranks, static_cast<int>(channels.value())), gpus.value(), machine));
  machine.fewBlocks = channels.value() < kMostChannels;
  return machine;
}

Communicator::Communicator(int rank, int ranks, const bootstrap::UniqueId& id, Config config)
    : rank_(rank),
      ranks_(ranks),
      id_(id),
      identity_(identityOf(id)),
      seated_(true),
      forkGeneration_(platform::forkGeneration()),
      config_(std::move(config)) {}

Communicator::Communicator(std::shared_ptr<Communicator> parent, FindSeat findSeat, Config config)
    : rank_(-1),
      ranks_(0),
      identity_(0),
      seated_(false),
      origin_{std::move(parent), std::move(findSeat), {}},
      forkGeneration_(platform::forkGeneration()),
      config_(std::move(config)) {}

Communicator::~Communicator() {
  worker_.reset();
  membership_.reset();
}

Status Communicator::initialise() {
  std::lock_guard life(lifeMutex_);
  warnOfUnknownVariables();
  if (!onDevice()) lookForDeviceMemory();
  const uint64_t began = platform::monotonicNanoseconds();
  Status status = takeSeat();
  if (status.ok()) status = initialiseSteps();
  const Origin origin = std::exchange(origin_, {});
  counters_.initNanoseconds = platform::monotonicNanoseconds() - began;
  if (status.ok() && (advance(State::kReady) || state() == State::kRevoked)) {
    logReady();
    return kOkStatus;
  }
  // Failed, or aborted or struck by a loss meanwhile: the others must not take this rank for a member.
  if (status.ok()) status = usable();
  markBroken(status, State::kFailed, lastError());
  if (origin.parent != nullptr && seated()) origin.parent->giveUpChild(identity_);
  {
    std::lock_guard lock(membershipMutex_);
    if (membership_ != nullptr) {
      membership_->sayGoodbye(bootstrap::Leaving::kAborted, farewell("could not connect"));
    }
  }
  if (origin.seat.opened) bootstrap::Service::closeSession(id_);  // if nobody has come
  return status;
}

void Communicator::logReady() const {
  STRETTO_LOG(kInfo, kInit, "rank %d of %d ready in %.2f ms (bootstrap %.2f, connect %.2f)", rank_, ranks_,
              static_cast<double>(counters_.initNanoseconds) * 1e-6,
              static_cast<double>(counters_.bootstrapNanoseconds) * 1e-6,
              static_cast<double>(counters_.connectNanoseconds) * 1e-6);
}

Status Communicator::initialiseSteps() {
  STRETTO_TRY(selectCpuLevel());
  auto table = planner::Table::load();
  if (!table.ok()) return table.status();
  table_ = std::move(table.value());
  auto forced = planner::Forced::load();
  if (!forced.ok()) return forced.status();
  forced_ = forced.value();

  const uint64_t start = platform::monotonicNanoseconds();
  STRETTO_TRY(join());
  const uint64_t joined = platform::monotonicNanoseconds();
  counters_.bootstrapNanoseconds = joined - start;
  if (ranks_ <= kMaxRanks) STRETTO_TRY(makeHost());
  if (onDevice() && header_.load() != nullptr) STRETTO_TRY(makeDevice());
  STRETTO_TRY(connections_.apart.empty() && ranks_ <= kMaxRanks ? openFlight() : handOver());
  STRETTO_TRY(openProfile());
  counters_.connectNanoseconds = platform::monotonicNanoseconds() - joined;
  return kOkStatus;
}

Status Communicator::join() {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  bootstrap::JoinOptions options;
  options.version = kLibraryVersion;
  options.onPeerLost = [this](const bootstrap::PeerLoss& loss) { peerLost(loss); };
  options.onNudged = [this](int rank, std::span<const uint8_t> message) { heard(rank, message); };
  auto joined = bootstrap::Membership::join(
      id_, rank_, ranks_, timeout.value(), [this] { return mayWait(); }, std::move(options));
  if (!joined.ok()) return reasonOfParent(joined.status());
  std::lock_guard lock(membershipMutex_);
  membership_ = std::move(joined.value());
  return kOkStatus;
}

// What ends this communicator's waits for its ranks while it is made and in exchanges.
Status Communicator::mayWait() const {
  const uint32_t word = abort_.load(std::memory_order_acquire);
  if (word == 0) return parentHolds();
  const Status why = statusOfAbort(word);
  std::string text;
  (void)error(&text);
  if (why.code != Code::kAborted) return stretto::failAbout(why.peer, why.code, "%s", text.c_str());
  return stretto::fail(Code::kAborted, "%s", farewell("called ncclCommAbort").c_str());
}

Status Communicator::makeHost() {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  const auto deterministic = parameters::kDeterministic.flag();
  const auto slotBytes = slotBytesFor(ranks_);
  if (!timeout.ok()) return timeout.status();
  if (!deterministic.ok()) return deterministic.status();
  if (!slotBytes.ok()) return slotBytes.status();
  ConnectRequest request;
  request.rank = rank_;
  request.ranks = ranks_;
  request.slotBytes = slotBytes.value();
  request.linkChunk = kLinkChunk;
  request.tableHash = table_.hash();
  // The long one last: what does not fit is left out.
  request.forced = parameters::kRings.text() + " " + parameters::kRingGather.text() + " " +
                   parameters::kProto.text() + " " + parameters::kAlgo.text();
  request.deterministic = deterministic.value();
  request.onDevice = onDevice();
  request.timeoutSeconds = timeout.value();
  STRETTO_TRY(connect(*membership_, request, connections_, machine_));
  isSpread_.store(!connections_.far.empty());
  if (!connections_.apart.empty()) return kOkStatus;
  if (!machine_.sameProcess && machine_.hosts == 1) importer_.notifyOfReleases([this] { nudgePeers(); });
  STRETTO_TRY(addCacheSize(machine_));
  STRETTO_TRY(addRings(machine_));

  auto policy = waitPolicy(ranks_, machine_.cores);
  if (!policy.ok()) return policy.status();
  const WindowLayout layout{static_cast<uint32_t>(ranks_), request.slotBytes, request.linkChunk};
  if (isSpread() && !onDevice()) {
    policy.value().polls = true;
    policy.value().yields = 20;  // each look is a call of the kernel already
    links::net::SpreadHost::Far far{*connections_.far.front(), connections_.places,
                                    [this](uint64_t peers) { show(peers); }};
    host_ = std::make_unique<links::net::SpreadHost>(rank_, connections_.peers, layout, policy.value(),
                                                     &importer_, std::move(far));
  } else {
    host_ = std::make_unique<Host>(rank_, connections_.peers, layout, policy.value(), &importer_);
  }
  oneSided_.open(rank_, connections_.peers, connections_.signalsOffset());
  header_.store(&connections_.header());
  // A rank may have been lost, or this one aborted, before there was a window to say so in.
  uint32_t none = 0;
  if (abort_.load() != 0) std::atomic_ref(header_.load()->abort).compare_exchange_strong(none, abort_.load());
  return kOkStatus;
}

Status Communicator::openFlight() {
  auto process = currentIdentity();
  if (!process.ok()) return process.status();
  observe::FlightIdentity identity;
  identity.process = process.value();
  identity.library = kLibraryVersion;
  identity.communicator = identity_;
  identity.rank = rank_;
  identity.ranks = ranks_;
  auto recorder = observe::FlightRecorder::open(identity);
  if (!recorder.ok()) return recorder.status();
  flight_ = std::move(recorder.value());
  host_->reportWaits([this](WaitStage stage, int peer) { waits(stage, peer); });
  return kOkStatus;
}

// On the thread that runs the operation.
void Communicator::waits(WaitStage stage, int peer) {
  if (stage == WaitStage::kLate) return flight_.late(recorded_, peer);
  flight_.waiting(recorded_, stage == WaitStage::kSleeps ? peer : -1);
}

// Last of what may fail, so that a plugin hears of communicators that work. Of one that was handed over NCCL
// tells its own.
Status Communicator::openProfile() {
  if (foreign() != nullptr) return kOkStatus;
  const auto every = parameters::kProfileEvery.integer(1, UINT32_MAX);
  if (!every.ok()) return every.status();
  std::set<std::string> hosts;
  for (const bootstrap::MemberInfo& member : membership_->members()) hosts.insert(member.host);
  profile_.open({identity_, config_.name, static_cast<int>(hosts.size()), ranks_, rank_,
                 static_cast<uint64_t>(every.value())},
                onDevice());
  return kOkStatus;
}

std::shared_ptr<executors::host::Stream> Communicator::worker() {
  std::lock_guard lock(workerMutex_);
  if (worker_ != nullptr) return worker_;
  std::function<void()> begins;
  if (onDevice()) begins = [device = config_.device] { (void)platform::cuda::stayOn(device); };
  auto made = std::make_shared<executors::host::Stream>(&profile_, std::move(begins));
  if (!releaseDue_.load()) worker_ = made;  // else nobody would end it
  return made;
}

// The worker's thread must not see the last reference die, so whoever lets go of a communicator ends it
// first.
void Communicator::endWorker() {
  std::shared_ptr<executors::host::Stream> last;
  std::lock_guard lock(workerMutex_);
  last = std::move(worker_);
}

void Communicator::release() {
  if (!releaseDue_.exchange(true)) turns_.listen();
  turns_.fenceOperations();
  if (!turns_.quiet()) return;  // then whoever ends the last operation comes here
  endWorker();  // before the lock: the worker may be making the communicator, and ends that at the abort's
                // word
  std::unique_lock life(lifeMutex_, std::try_to_lock);
  constexpr int kEndOfFinalise = 1000;  // milliseconds; the thread sanitizer knows no timed mutexes
  for (int i = 0; i < kEndOfFinalise && !life.owns_lock(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)life.try_lock();
  }
  if (!life.owns_lock()) return;
  if (foreign() != nullptr && state() == State::kFinalised) (void)foreign_->destroy();
  if (foreign() != nullptr) foreign_->abort();  // nothing, after that
  {
    std::lock_guard lock(membershipMutex_);
    membership_.reset();
  }
  header_.store(nullptr);
  host_.reset();
  oneSided_.close();
  if (onDevice()) letGoOfDevice();
  connections_ = {};
  importer_.close();
  flight_ = {};
  // Not `= {}`: a vector keeps its room then.
  std::vector<std::byte>().swap(scaled_);
  std::vector<executors::host::HostTransfer>().swap(transfers_);
  table_ = planner::Table();
  prepared_.clear();
  profile_.close();
}

// States only move on; the graver one stays.
bool Communicator::advance(State to) {
  State now = state_.load(std::memory_order_acquire);
  while (now < to) {
    if (state_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) return true;
  }
  return false;
}

Status Communicator::mayTouch() const {
  if (forkGeneration_ == platform::forkGeneration()) [[likely]]
    return kOkStatus;
  return stretto::fail(
      Code::kInvalidUsage,
      "rank %d: this communicator belongs to the process that forked this one, which alone may use and end "
      "it; make a new one here",
      rank_);
}

Status Communicator::whyNotCall() const {
  STRETTO_TRY(usable());
  if (suspended_.load()) {
    return stretto::fail(Code::kInvalidUsage,
                         "rank %d: the communicator is suspended: call ncclCommResume first", rank_);
  }
  return stretto::fail(
      Code::kInvalidUsage,
      "rank %d: the communicator is being finalised: after ncclCommFinalize only ncclCommGetAsyncError, "
      "ncclCommDestroy and ncclCommAbort may follow",
      rank_);
}

Status Communicator::usable() const {
  STRETTO_TRY(mayTouch());
  switch (state()) {
    case State::kReady:
      return kOkStatus;
    case State::kInitialising:
      return stretto::fail(
          Code::kInvalidUsage,
          "rank %d: the communicator is still being made; poll ncclCommGetAsyncError until it is not "
          "ncclInProgress",
          rank_);
    case State::kFinalised:
      return stretto::fail(Code::kInvalidUsage, "rank %d: the communicator was finalised; make a new one",
                           rank_);
    case State::kRevoked:
      return stretto::fail(Code::kInvalidUsage,
                           "rank %d: the communicator was revoked; shrink, split or destroy it", rank_);
    case State::kAborted:
      return stretto::fail(Code::kAborted, "rank %d: the communicator was aborted", rank_);
    case State::kFailed:
      break;
  }
  std::string text;
  const Status first = error(&text);
  return stretto::failAbout(first.peer, first.code, "%s", text.c_str());
}

Status Communicator::error(std::string* text) const {
  std::lock_guard lock(errorMutex_);
  if (text != nullptr) *text = errorText_;
  if (errorCode_ != Code::kOk) return Status{errorCode_, errorPeer_};
  const bool busy =
      state() == State::kInitialising || finalising_.load() || (!config_.blocking && !turns_.quiet());
  return Status{busy ? Code::kInProgress : Code::kOk};
}

// On the bootstrap's thread: a peer has freed memory, needs this rank's device window, which may not have a
// place yet, or calls nothing any more.
void Communicator::nudged() {
  importer_.sweep();
  nudged_.store(true);
  DeviceSide* const device = abortable_.load();
  if (device == nullptr) return;
  device->serveSoon();
  if (std::any_of(connections_.peers.begin(), connections_.peers.end(),
                  [](const Peer& peer) { return callsNothingMore(peer.header()); })) {
    somebodyLeft_.store(true);
  }
}

Status Communicator::finalise() {
  if (state() == State::kFinalised) return kOkStatus;
  // Bounded: every operation ends by its own deadline, and none can come any more.
  while (!turns_.quiet() && !turns_.awaitQuiet(1)) {
  }
  const std::lock_guard life(lifeMutex_);  // an abort by another thread lets go when this has seen it
  WindowHeader* const header = header_.load();
  const auto leave = [&](uint32_t how) {
    if (header != nullptr) std::atomic_ref(header->left).store(how, std::memory_order_release);
  };
  // Before the wait: kernels of this device may wait for a peer's that waits for what this rank never calls.
  if (state() == State::kReady) {
    leave(WindowHeader::kCallsOver);
  } else if (onDevice()) {
    notifyPeers("destroyed its communicator");
  }
  if (onDevice()) nudgePeers();
  const bool done = !onDevice() || finishLaunches();
  const bool healthy = state() == State::kReady && advance(State::kFinalised);
  if (healthy && done) leave(WindowHeader::kGone);
  // A proxy has said its own goodbye.
  if (healthy && isSpread() && !onDevice()) connections_.far.front()->leave();
  std::lock_guard lock(membershipMutex_);
  if (isSpread()) showNow(0);  // before the goodbye: peers look here for why this rank does not come
  if (membership_ != nullptr) {
    if (healthy) {
      membership_->sayGoodbye(bootstrap::Leaving::kNormally);
    } else {
      membership_->sayGoodbye(bootstrap::Leaving::kAborted, farewell("destroyed its communicator"));
    }
  }
  return kOkStatus;
}

Status Communicator::startFinalise() {
  const auto finaliseAll = [](Communicator& self) {
    if (self.foreign() != nullptr) STRETTO_TRY(self.foreign_->finalise());
    return self.finalise();
  };
  if (config_.blocking) return finaliseAll(*this);
  finalising_.store(true);
  worker()->submit([finaliseAll, self = shared_from_this()] {
    (void)finaliseAll(*self);
    self->finalising_.store(false);
  });
  return Status{Code::kInProgress};
}

void Communicator::abort() {
  advance(State::kAborted);
  flight_.setState(observe::FlightState::kAborted);
  raiseAbort({Code::kAborted});
  if (foreign() != nullptr) foreign_->abort();
  if (!turns_.awaitQuiet(0.4)) {
    STRETTO_LOG(kWarn, kInit, "rank %d: an operation still runs 0.4 s after the abort; its memory is kept",
                rank_);
  }
  {
    std::lock_guard lock(membershipMutex_);
    if (membership_ != nullptr) {
      membership_->sayGoodbye(bootstrap::Leaving::kAborted, farewell("called ncclCommAbort"));
    }
  }
  release();
}

// An abort may come at the same time, and let go of what is written to here.
void Communicator::revoke() {
  const Hold hold(*this);
  if (!hold.holds()) return;
  markBroken({}, State::kRevoked, "");
  stopOperations(abortWord({Code::kAborted}));
  if (foreign() != nullptr) foreign_->abort();
  if (onDevice()) nudgePeers();  // which wait in kernels, and see no word in host memory
}

// On GPUs all memory is the window, which kernels of peers may write at any time.
Status Communicator::suspend() {
  STRETTO_TRY(mayCall());
  if (onDevice()) {
    return stretto::fail(Code::kInvalidUsage, "rank %d: memory of GPUs cannot be given back for a while yet",
                         rank_);
  }
  const Turn turn(*this, takeTurn());
  STRETTO_TRY(usable());
  if (!turn.mine()) return stretto::fail(Code::kAborted, "rank %d: aborted before it was suspended", rank_);
  host_->releaseScratch();
  std::vector<std::byte>().swap(scaled_);
  importer_.unmap();
  suspended_.store(true);
  return kOkStatus;
}

// What is needed again is taken when it is.
Status Communicator::resume() {
  STRETTO_TRY(usable());
  if (suspended_.exchange(false)) return kOkStatus;
  return stretto::fail(Code::kInvalidUsage, "rank %d: the communicator is not suspended", rank_);
}

size_t Communicator::suspendableBytes() {
  const Hold hold(*this);
  return !hold.holds() || host_ == nullptr || suspended_.load() ? 0
                                                                : host_->scratchBytes() + scaled_.capacity();
}

Counters Communicator::counters() const {
  Counters counters = counters_;
  return counters;
}
size_t Communicator::windowBytes() {
  const Hold hold(*this);
  if (!hold.holds()) return 0;
  if (device_ != nullptr) return device_->windowBytes();
  return connections_.region == nullptr ? 0 : connections_.region->bytes();
}
WaitCounters Communicator::waitCounters() {
  const Hold hold(*this);
  return !hold.holds() || host_ == nullptr ? WaitCounters{} : host_->waitCounters();
}

int Communicator::addPreMultiplier(DataType type, const void* scalar, bool immediate) {
  PreMultiplier entry;
  entry.type = type;
  entry.alive = true;
  entry.place = immediate ? nullptr : scalar;
  if (immediate) std::copy_n(static_cast<const uint8_t*>(scalar), sizeOf(type), entry.scalar);
  const std::lock_guard lock(multipliersMutex_);
  const auto free =
      std::find_if(preMultipliers_.begin(), preMultipliers_.end(), [](auto& one) { return !one.alive; });
  if (free != preMultipliers_.end()) {
    *free = entry;
    return static_cast<int>(free - preMultipliers_.begin());
  }
  preMultipliers_.push_back(entry);
  return static_cast<int>(preMultipliers_.size() - 1);
}

std::optional<PreMultiplier> Communicator::preMultiplier(int index) const {
  const std::lock_guard lock(multipliersMutex_);
  const bool known = index >= 0 && static_cast<size_t>(index) < preMultipliers_.size();
  if (!known || !preMultipliers_[static_cast<size_t>(index)].alive) return std::nullopt;
  return preMultipliers_[static_cast<size_t>(index)];
}

Status Communicator::removePreMultiplier(int index) {
  if (!preMultiplier(index)) {
    return stretto::fail(Code::kInvalidArgument, "operator %d is not a PreMulSum of this communicator",
                         index);
  }
  const std::lock_guard lock(multipliersMutex_);
  preMultipliers_[static_cast<size_t>(index)].alive = false;
  return kOkStatus;
}

}  // namespace stretto::communicator
