// Operations of a rank on a GPU: enqueued here, and looked after until they have ended.
#include <algorithm>
#include <array>
#include <bit>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/device/watch.hpp"
#include "platform/clock.hpp"
#include "platform/fork.hpp"
#include "primitives/disagreement.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {
namespace {

// A place as this rank addresses it, by rank; null if it is none.
using AddressOfRanks = std::array<std::byte*, kMaxRanks>;
std::byte* const* addressesOf(const WindowPlace& place, AddressOfRanks& addresses) {
  if (place.window == nullptr) return nullptr;
  std::transform(place.window->links.begin(), place.window->links.end(), addresses.begin(),
                 [&](const links::DeviceLink& link) { return link.window + place.offset; });
  return addresses.data();
}

}  // namespace

executors::cuda::Launch launchOf(const Operation& operation, const planner::Plan& plan,
                                 const Arguments& arguments) {
  executors::cuda::Launch launch;
  launch.collective = operation.collective;
  launch.algorithm = plan.algorithm;
  launch.protocol = plan.protocol;
  launch.blocks = plan.blocks;
  launch.arguments = arguments;
  launch.scaled = operation.scaled;
  if (operation.scaled) {
    std::copy_n(operation.scalar, sizeof launch.scalar, launch.scalar);
    launch.scalarPlace = operation.scalarPlace;
  }
  return launch;
}

Status Communicator::makeDevice() {
  const auto initTimeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  const auto timeout = parameters::kTimeout.seconds(0.001, 1e7);
  if (!initTimeout.ok()) return initTimeout.status();
  const auto warnAfter = parameters::warnAfter();
  if (!timeout.ok()) return timeout.status();
  if (!warnAfter.ok()) return warnAfter.status();
  freeWhatCanBe();
  DeviceConnections connections;
  STRETTO_TRY(connectDevices(
      *membership_, {rank_, ranks_, config_.device, initTimeout.value(), config_.mostBlocks, isSpread()},
      connections));
  if (!connections.apart.empty()) {
    connections_.apart = std::move(connections.apart);
    return kOkStatus;
  }
  STRETTO_TRY(describe(connections.shape, connections.gpus, machine_));
  machine_.fewBlocks = connections.fewBlocks;
  auto device = DeviceSide::create(std::move(connections), connections_, rank_, ranks_,
                                   {timeout.value(), warnAfter.value()});
  if (!device.ok()) return device.status();
  {
    std::lock_guard lock(deviceMutex_);
    device_ = std::move(device.value());
  }
  abortable_.store(device_.get());
  if (abort_.load() != 0) device_->abort(abort_.load());
  if (nudged_.load()) nudged();
  if (ranks_ == 1) return kOkStatus;
  watchOver(rank_, config_.device, [weak = weak_from_this()] {
    const std::shared_ptr<Communicator> self = weak.lock();
    return self != nullptr && self->watch();
  });
  return kOkStatus;
}

void Communicator::nudgePeers() {
  std::lock_guard lock(membershipMutex_);
  if (membership_ != nullptr) membership_->nudge();
}

// Device windows are made and opened when the first operation needs them. A rank that had left before is
// missed by those who need it only.
Status Communicator::reachWindows(int peer) {
  if (ranks_ == 1 || device_->reaches(peer)) [[likely]] {
    return kOkStatus;
  }
  const uint64_t began = platform::monotonicNanoseconds();
  STRETTO_TRY(device_->reach(peer, [this] { nudgePeers(); }));
  const uint64_t taken = platform::monotonicNanoseconds() - began;
  counters_.connectNanoseconds += taken;
  STRETTO_LOG(kInfo, kInit, "rank %d of %d: device windows of %zu bytes made and opened in %.2f ms", rank_,
              ranks_, device_->windowBytes(), static_cast<double>(taken) * 1e-6);
  if (device_->reaches(peer)) return kOkStatus;
  const int absent = peer == DeviceSide::kEverybody ? device_->absentee() : peer;
  return failAbout(absent, Code::kRemote,
                   "rank %d left the communicator before rank %d called an operation that needs it", absent,
                   rank_);
}

// Before anything of it is announced: what is refused here, this rank has not called.
Status Communicator::mayLaunch(std::span<const Operation> operations) {
  if (const Status status = poll(); !status.ok()) return refuse(operations[0], status);
  for (const Operation& operation : operations) {
    // A window may have gone since a group took the call.
    Status status = operation.isOneSided() ? device_->checkOneSided(operation) : kOkStatus;
    if (status.ok()) status = device_->checkBuffers(operation);
    if (status.ok()) continue;
    profile_.takeBack(operations);
    return status;
  }
  return kOkStatus;
}

// In windows, of its results if copy engines write them there; of its inputs, and of results that are read as
// well, if kernels read them there; else 0.
std::pair<uint64_t, uint64_t> Communicator::placesOf(const Operation& operation,
                                                     const planner::Plan& plan) const {
  if (operation.count == 0) return {0, 0};
  if (plan.protocol == planner::Protocol::kCopy) return {device_->resultsOf(operation).word(), 0};
  if (!algorithms::isPull(plan.protocol)) return {0, 0};
  const PullPlaces pulls = device_->pullsOf(operation);
  return {pulls.inputs.word(), plan.algorithm == planner::Algorithm::kTwoShot ? pulls.results.word() : 0};
}

Status Communicator::launchOnDevice(const Operation& operation, const planner::Plan& plan,
                                    const Arguments& arguments, uint64_t tag) {
  executors::cuda::Launch launch = launchOf(operation, plan, arguments);
  launch.tag = tag;
  launch.sequence = sequence_;
  AddressOfRanks sends, receives;
  if (plan.protocol == planner::Protocol::kCopy) {
    launch.receives = addressesOf(device_->resultsOf(operation), receives);
  } else if (algorithms::isPull(plan.protocol)) {
    const PullPlaces pulls = device_->pullsOf(operation);
    readsPeers_.store(true);
    launch.sends = addressesOf(pulls.inputs, sends);
    launch.receives = addressesOf(pulls.results, receives);
  }
  const bool counted = plan.algorithm != planner::Algorithm::kLocal;
  if (profile_.wantsKernels(operation)) [[unlikely]]
    followKernels();
  LaunchLog::Entry entry;
  entry.sequence = sequence_;
  entry.firstLaunch = device_->lastLaunch().number + 1;
  Status status = counted ? reachWindows(DeviceSide::kEverybody) : kOkStatus;
  if (status.ok()) status = device_->launch(launch, operation.stream);
  if (profile_.on() && status.ok()) [[unlikely]]
    reportLaunched(operation, plan, device_->lastLaunch());
  entry.number = device_->counted() + (counted ? 0 : 1);
  entry.lastLaunch = device_->lastLaunch().number;
  return concludeLaunch(operation, std::move(entry), status);
}

void Communicator::reportLaunched(const Operation& operation, const planner::Plan& plan,
                                  const executors::cuda::Engine::Launched& launched) {
  if (device_->lastRuns()) {
    profile_.enqueued(operation, plan, launched);
  } else {
    profile_.captured(operation, launched);
  }
}

// Each is concluded as if it had been launched by itself; the last one's number is sequence_ before and
// after.
Status Communicator::launchTogether() {
  const Together& together = together_;
  if (together.empty()) return kOkStatus;
  for (size_t i = 0; i < together.size(); ++i) {
    if (profile_.wantsKernels(*together[i].operation)) [[unlikely]]
      followKernels();
  }
  Status status = reachWindows(DeviceSide::kEverybody);
  if (status.ok()) status = device_->launchTogether(together.launches(), together.stream());
  const uint64_t before = device_->counted() - (status.ok() && device_->lastRuns() ? together.size() : 0);
  Status first;
  for (size_t i = 0; i < together.size(); ++i) {
    const Together::Member& member = together[i];
    sequence_ = together.launches()[i].sequence;
    recorded_ = member.recorded;
    watched_ = member.watched;
    if (profile_.on() && status.ok()) [[unlikely]]
      reportLaunched(*member.operation, member.plan, device_->lastOf(i));
    LaunchLog::Entry entry;
    entry.number = before + 1 + i;
    entry.sequence = sequence_;
    entry.firstLaunch = entry.lastLaunch = device_->lastOf(i).number;
    const Status own = concludeLaunch(*member.operation, std::move(entry), status);
    if (first.ok()) first = own;
  }
  together_.clear();
  return first;
}

// The operation is announced by now, and goes on without its stamps if they cannot be had; so do all later
// ones.
void Communicator::followKernels() {
  const std::string before = lastError();
  Status status = device_->wantStamps();
  if (status.ok()) {
    status = profile_.followKernels([device = device_.get()](std::span<KernelStamp> stamps, uint64_t& lost) {
      return device->takeStamps(stamps, lost);
    });
  }
  if (status.ok()) return;
  STRETTO_LOG(kWarn, kProfile, "rank %d: the profiler plugin is not told when kernels run: %s", rank_,
              lastError().c_str());
  setLastError(before);
  profile_.doWithoutKernels();
}

namespace {

CallRecord callWithPeer(const Operation& operation) {
  CallRecord call{};
  call.sequence = 1;  // until it is announced
  call.count = operation.count;
  call.startedTicks = platform::ticks();
  call.collective = static_cast<uint8_t>(operation.collective);
  call.type = static_cast<uint8_t>(operation.type);
  call.op = 0xff;
  call.root = operation.root;
  return call;
}

// Of a group's transfers, with the first that moves something to or from a peer for the words of an error.
LaunchLog::Entry entryOf(std::span<const Operation> operations) {
  LaunchLog::Entry entry;
  for (const Operation& operation : operations) {
    if (!operation.isTransfer() || operation.count == 0) continue;
    const bool isSend = operation.collective == Collective::kSend;
    entry.messages.push_back({static_cast<int16_t>(operation.root), isSend});
    if (entry.first.sequence == 0) entry.first = callWithPeer(operation);
  }
  return entry;
}

}  // namespace

Status Communicator::launchTransfers(const Operation& first, std::span<const Operation> operations) {
  for (const Operation& operation : operations) {
    if (profile_.wantsKernels(operation)) [[unlikely]]
      followKernels();
  }
  Status status;
  for (const Operation& operation : operations) {
    if (status.ok() && operation.isTransfer() && operation.count != 0) status = reachWindows(operation.root);
  }
  LaunchLog::Entry entry = entryOf(operations);
  entry.firstLaunch = device_->lastLaunch().number + 1;
  if (status.ok()) status = device_->launchTransfers(operations);
  entry.lastLaunch = device_->lastLaunch().number;
  entry.number = device_->counted() + 1;
  if (profile_.on() && status.ok() && device_->lastRuns()) [[unlikely]] {
    for (const Operation& operation : operations) {
      if (operation.isTransfer()) profile_.enqueued(operation, {}, device_->lastTransfers(operation));
    }
  }
  return concludeLaunch(first, std::move(entry), status);
}

// As between CPU ranks. What lies where a peer's window lay may be another's by now.
Status Communicator::mayPutTo(int peer) const {
  if (peer == rank_ || !callsNothingMore(connections_.peers[static_cast<size_t>(peer)].header()))
    return kOkStatus;
  return stretto::failAbout(
      peer, Code::kRemote,
      "rank %d has finalised its communicator, or given up on it, before rank %d signalled it", peer, rank_);
}

// One that waits for signals moves no message: a peer's launch that moves messages does not end its wait.
Status Communicator::launchOneSided(const Operation& operation) {
  LaunchLog::Entry entry;
  entry.first = callWithPeer(operation);
  entry.firstLaunch = device_->lastLaunch().number + 1;
  Status status = operation.collective == Collective::kWaitSignal ? kOkStatus : mayPutTo(operation.root);
  if (status.ok()) status = reachWindows(operation.root);
  if (status.ok()) status = device_->launchOneSided(operation);
  entry.lastLaunch = device_->lastLaunch().number;
  entry.number = device_->counted() + 1;
  return concludeLaunch(operation, std::move(entry), status);
}

// In the flight recorder an operation goes on until it is seen to be done, when so many kernels have ended;
// one that was captured ends here. What is not counted itself is done when the next one that is counted is.
Status Communicator::concludeLaunch(const Operation& operation, LaunchLog::Entry entry, Status status) {
  if (!status.ok()) {
    const bool isNews = state() != State::kFailed;
    status = conclude(operation, status);
    if (!isNews || state() != State::kFailed) return status;
    raiseAbort(status);
    notifyPeers("could not launch an operation");
    return status;
  }
  if (!device_->lastRuns()) {
    if (!entry.messages.empty()) {
      const std::lock_guard lock(launchMutex_);
      launches_.loseCount();
    }
    return conclude(operation, status);
  }
  if (watched_) [[unlikely]]
    endWatched(platform::ticks());
  ++counters_.operations;
  if (operation.collective != Collective::kWaitSignal) counters_.bytes += operation.bytes();
  {
    std::lock_guard lock(launchMutex_);
    entry.place = recorded_;
    entry.ticks = platform::ticks();
    launches_.add(std::move(entry));
  }
  reapLaunches(false);
  return kOkStatus;
}

// Looking costs more than an operation, so it is done now and then; `all`: the device is known to be idle.
// Returns a rank that has left without the collective that is the next to end, or -1.
int Communicator::reapLaunches(bool all) {
  constexpr double kRestSeconds = 0.1;
  constexpr double kPatienceSeconds = 0.5;
  const uint64_t now = platform::ticks();
  std::lock_guard lock(launchMutex_);
  const bool due = platform::tickSeconds(now - lookedTicks_) > kRestSeconds;
  if (launches_.oldest() == nullptr || (!all && !due)) return -1;
  const uint64_t finished = all ? UINT64_MAX : device_->finished();
  const LaunchLog::Entry* oldest = launches_.oldest();
  for (; oldest != nullptr && oldest->number <= finished; oldest = launches_.oldest()) {
    flight_.end(oldest->place, kOkStatus, now);
    launches_.drop();
  }
  lookedTicks_ = platform::ticks();
  const LaunchLog::Entry* next = launches_.oldestCollective();
  const bool stuck = next != nullptr && platform::tickSeconds(now - next->ticks) > kPatienceSeconds;
  return stuck ? absentee(next->sequence) : -1;
}

// What a rank has not called when it finalises, or gives up, it never will.
int Communicator::absentee(uint64_t sequence) const {
  for (const Peer& peer : connections_.peers) {
    if (peer.rank != rank_ && callsNothingMore(peer.header()) &&
        connections_.operationLog(peer.rank).last() < sequence) {
      return peer.rank;
    }
  }
  return -1;
}

// Ranks, a bit each, that do nothing any more, as they have left or given up.
uint64_t Communicator::gone() const {
  uint64_t gone = 0;
  for (const Peer& peer : connections_.peers) {
    const bool doesNothing = hasGone(peer.header()) || hasFailed(peer.header());
    if (peer.rank != rank_ && doesNothing) gone |= uint64_t{1} << peer.rank;
  }
  return gone;
}

Status Communicator::poll() {
  // A forked child has the parent's locks as they were.
  if (forkGeneration_ != platform::forkGeneration()) [[unlikely]] {
    return usable();
  }
  if (foreign() != nullptr) return pollForeign();
  {
    const std::lock_guard lock(deviceMutex_);
    if (device_ == nullptr) return kOkStatus;
  }
  STRETTO_TRY(lookAtKernels());
  return state() == State::kReady ? kOkStatus : usable();
}

// What kernels have reported, or will never come to, becomes the communicator's error. Not ok: peers failed
// while kernels read their windows.
Status Communicator::lookAtKernels() {
  bool mine = false;
  {
    std::lock_guard lock(deviceMutex_);
    if (device_ == nullptr) return kOkStatus;
    const int gone = device_->report().status.ok() ? reapLaunches(false) : -1;
    mine = gone >= 0 ? noteAbsence(gone) : noteReport();
    if (!mine && state() == State::kReady) STRETTO_TRY(verifyReads());
  }
  if (mine) notifyPeers("gave up in a kernel");
  return kOkStatus;
}

// Kernels that read peers' registered windows cannot see that a peer had failed, and its caller had written
// there, while they read; who asks after them can. The reason comes by liveness and then is the error; until
// then this is the answer, and it is not kept. A revoke comes in no other way.
Status Communicator::verifyReads() const {
  if (!readsPeers_.load()) return kOkStatus;
  for (const Peer& peer : connections_.peers) {
    WindowHeader& window = peer.header();
    const uint32_t failed = std::atomic_ref(window.failed).load(std::memory_order_acquire) |
                            std::atomic_ref(window.abort).load(std::memory_order_acquire);
    if (peer.rank == rank_ || failed == 0) continue;
    return stretto::failAbout(peer.rank, Code::kRemote,
                              "rank %d: rank %d has given up on this communicator; operations that read its "
                              "registered windows since may have read anything",
                              rank_, peer.rank);
  }
  return kOkStatus;
}

// On the device's thread (device/watch.hpp), for users who wait for a stream: asks as a user's watchdog would
// once somebody has left. False when there is nothing to look after any more.
bool Communicator::watch() {
  if (somebodyLeft_.load()) (void)lookAtKernels();
  if (noteDisagreement()) notifyPeers("waited for what its peers will not do");
  if (isSpread() && noteBrokenLink()) notifyPeers("lost its link to another host");
  return state() <= State::kReady;
}

// Once a kernel has waited for long: whether peers have called something else, which kernels of other forms
// do not see, or kernels wait for each other without an end, this rank's among them. True if that became this
// communicator's error now.
bool Communicator::noteDisagreement() {
  const std::lock_guard lock(deviceMutex_);
  if (device_ == nullptr || state() != State::kReady) return false;
  const bool waits = device_->publishWaits(
      [this](uint32_t launch, WaitingLaunch& what) { return reportWaits(launch, what); });
  warnOfLateLaunch();
  if (!waits) return false;
  askOtherHosts();
  const OperationLog mine = connections_.operationLog(rank_);
  for (const Peer& peer : connections_.peers) {
    const Difference calls = mine.firstDifferenceTo(connections_.operationLog(peer.rank));
    if (!calls.found()) continue;
    return failDisagreeing(peer.rank,
                           ranksDisagree(rank_, inWords(calls.mine), peer.rank, inWords(calls.theirs)));
  }
  const auto [members, gone] = device_->standstill(this->gone());
  if (gone >= 0) return noteAbsence(gone);
  if (members == 0) return false;
  std::atomic_ref(connections_.header().wait.disagreeing).store(members, std::memory_order_release);
  return failDisagreeing(std::countr_zero(members & ~(uint64_t{1} << rank_)),
                         ranksStandStill(connections_.peers, members, rank_));
}

// What they have called is known here when they have said it. Once a second, by the device's thread.
void Communicator::askOtherHosts() {
  constexpr double kPauseSeconds = 1;
  const uint64_t now = platform::ticks();
  if (!isSpread() || (askedTicks_ != 0 && platform::tickSeconds(now - askedTicks_) < kPauseSeconds)) return;
  askedTicks_ = now;
  uint64_t others = 0;
  for (const links::Link& link : connections_.links) {
    const auto rank = static_cast<size_t>(&link - connections_.links.data());
    if (link.standIn != nullptr) others |= uint64_t{1} << rank;
  }
  show(others);
}

// Most likely the peer has died or aborted, and word of that has come another way by now.
bool Communicator::noteBrokenLink() {
  std::string words;
  int peer = -1;
  std::string text = "rank " + std::to_string(rank_) + " has lost its link over ";
  {
    const std::lock_guard lock(deviceMutex_);
    if (device_ == nullptr || state() != State::kReady) return false;
    peer = device_->brokenFor(kSecondHandSeconds, words);
    if (peer < 0) return false;
    text += connections_.far.front()->netName();
  }
  {
    const std::lock_guard lock(membershipMutex_);
    if (membership_ == nullptr) return false;
    text += " to rank " + std::to_string(peer) + " (host " +
            membership_->members()[static_cast<size_t>(peer)].host + "): " + words;
  }
  const Status why{Code::kRemote, static_cast<int16_t>(peer)};
  markBroken(why, State::kFailed, text);
  flight_.note(text.c_str());
  raiseAbort(why);
  return true;
}

bool Communicator::failDisagreeing(int peer, const std::string& words) {
  const Status why{Code::kInvalidUsage, static_cast<int16_t>(peer)};
  markBroken(why, State::kFailed, words);
  flight_.note(words.c_str());
  raiseAbort(why);
  return true;
}

// What the kernel of a launch was called as, also to peers that will say so in words.
bool Communicator::reportWaits(uint32_t launch, WaitingLaunch& what) {
  const std::lock_guard lock(launchMutex_);
  const LaunchLog::Entry* const entry = launches_.ofLaunch(launch);
  if (entry == nullptr) return false;
  what = launches_.describe(*entry);
  if (what.isTransfers) {
    recordTransfer(connections_.header().wait, entry->first);
    return true;
  }
  const CallRecord call = connections_.operationLog(rank_).find(entry->sequence);
  if (call.sequence != 0) stretto::recordCall(connections_.header(), call);
  return true;
}

// Bounded: kernels give up at their own deadlines, and at an abort. Work of the user's that lies before them
// has no deadline, so that the wait has one.
bool Communicator::finishLaunches() {
  constexpr double kLongest = 60;
  constexpr double kAfterAbort = 0.5;
  constexpr double kLongestForPeers = 10;
  if (device_ == nullptr) return true;
  const bool done = device_->idle(kLongest, [&] {
    (void)lookAtKernels();
    return abort_.load() != 0;
  }) || device_->idle(kAfterAbort);
  (void)lookAtKernels();
  if (!done || state() != State::kReady) return done;
  (void)reapLaunches(true);
  if (!device_->leave(kLongestForPeers, [&] { return abort_.load() != 0; }) && abort_.load() == 0) {
    STRETTO_LOG(
        kWarn, kInit,
        "rank %d leaves although not all that it has sent has left its host within %g s: it may be lost",
        rank_, kLongestForPeers);
  }
  const int peer = device_->awaitPeers(kLongestForPeers);
  if (peer >= 0 && abort_.load() == 0) {
    STRETTO_LOG(kWarn, kInit,
                "rank %d leaves although rank %d has not opened its device window within %g s: what it has "
                "sent may be lost",
                rank_, peer, kLongestForPeers);
  }
  return true;
}

void Communicator::letGoOfDevice() {
  profile_.letGoOfKernels();
  abortable_.store(nullptr);
  std::unique_ptr<DeviceSide> last;
  {
    std::lock_guard lock(deviceMutex_);
    last = std::move(device_);
  }
  if (last == nullptr) return;
  const bool peaceful = state() == State::kFinalised;
  std::vector<int> absent{rank_};
  {
    std::lock_guard lock(errorMutex_);
    for (const auto& [rank, text] : lost_) absent.push_back(rank);
  }
  // Nobody else writes where a proxy does.
  for (int rank = 0; isSpread() && rank < ranks_; ++rank) absent.push_back(rank);
  letGo(std::move(last), std::move(connections_), std::move(absent), peaceful ? 1.0 : 0.2);
  freeWhatCanBe();
}

}  // namespace stretto::communicator
