#include "communicator/device/watchdog.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/log.hpp"
#include "platform/clock.hpp"
#include "primitives/disagreement.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {
namespace {

// What a rank has called instead of `mine`, by the tag that a kernel saw, else under the same number;
// sequence 0 if that is not known (any more).
CallRecord calledInstead(const OperationLog& theirs, const CallRecord& mine, uint64_t tag) {
  const CallRecord same = theirs.find(mine.sequence);
  if (same.sequence != 0 && same.tag != mine.tag) return same;
  return theirs.findTag(tag);
}

// What a rank that did not come has called under the same number, if that is not the same: forms of one
// collective wait in different places.
std::string calledElsewhere(const OperationLog& theirs, const CallRecord& mine, const std::string& whom) {
  const CallRecord same = theirs.find(mine.sequence);
  if (mine.sequence == 0 || same.sequence == 0 || same.tag == mine.tag) return "";
  return "; " + whom + " called " + inWords(same) +
         (same.place == mine.place
              ? ""
              : ", and all ranks must give a collective the same place in the same window");
}

std::string wordsOf(const executors::cuda::Report& report, const Connections& connections, int rank) {
  const CallRecord mine = connections.operationLog(rank).find(report.sequence);
  const bool ofSignals = report.sequence == executors::cuda::Report::kSignals;
  const std::string what = ofSignals              ? "a wait for signals"
                           : report.sequence == 0 ? "a point-to-point transfer"
                           : mine.sequence != 0   ? inWords(mine)
                                                  : "operation #" + std::to_string(report.sequence);
  const int peer = report.status.peer;
  const bool known = peer >= 0 && static_cast<size_t>(peer) < connections.peers.size();
  const std::string whom = known ? "rank " + std::to_string(peer) : "its peers";
  const std::string me = "rank " + std::to_string(rank);
  switch (report.status.code) {
    case Code::kInvalidUsage: {
      if (ofSignals) return me + " waits for more signals of its own than it has sent itself";
      const CallRecord theirs =
          known ? calledInstead(connections.operationLog(peer), mine, report.theirTag) : CallRecord{};
      const Difference before =
          known && theirs.sequence == 0
              ? connections.operationLog(rank).firstDifferenceTo(connections.operationLog(peer))
              : Difference{};
      return before.found() ? ranksDisagree(rank, inWords(before.mine), peer, inWords(before.theirs))
                            : ranksDisagree(rank, what, peer, inWords(theirs));
    }
    case Code::kTimeout:
      return me + " waited longer than STRETTO_TIMEOUT for " + whom + " in " + what +
             (known ? calledElsewhere(connections.operationLog(peer), mine, whom) : "") + ". Look at " +
             (known ? "that rank" : "them") + " with `stretto doctor`.";
    case Code::kRemote:
      return me + ": " + whom + " has given up or was lost in " + what;
    case Code::kAborted:
      return me + ": " + what + " was ended by an abort";
    default:
      return me + ": the kernel of " + what + " failed (" + nameOf(report.status.code) + ")";
  }
}

}  // namespace

void LaunchWatchdog::adopt(std::unique_ptr<DeviceSide> side) {
  {
    const std::lock_guard lock(sideMutex_);
    side_ = std::move(side);
  }
  abortable_.store(side_.get());
  if (health_.isAborted()) side_->abort(health_.abortWord());
  if (nudged_.load()) nudged();
}

std::unique_ptr<DeviceSide> LaunchWatchdog::letGo() {
  abortable_.store(nullptr);
  {
    const std::lock_guard lock(logMutex_);
    log_ = {};
  }
  const std::lock_guard lock(sideMutex_);
  return std::move(side_);
}

bool LaunchWatchdog::isThere() {
  const std::lock_guard lock(sideMutex_);
  return side_ != nullptr;
}

void LaunchWatchdog::abort(uint32_t word) {
  if (DeviceSide* const side = abortable_.load(); side != nullptr) side->abort(word);
}

void LaunchWatchdog::nudged() {
  nudged_.store(true);
  DeviceSide* const side = abortable_.load();
  if (side == nullptr) return;
  side->serveSoon();
  if (std::any_of(connections_.peers.begin(), connections_.peers.end(),
                  [](const Peer& peer) { return callsNothingMore(peer.header()); })) {
    somebodyLeft_.store(true);
  }
}

void LaunchWatchdog::note(LaunchLog::Entry entry) {
  {
    const std::lock_guard lock(logMutex_);
    entry.ticks = platform::ticks();
    log_.add(std::move(entry));
  }
  reap(false);
}

void LaunchWatchdog::loseCount() {
  const std::lock_guard lock(logMutex_);
  log_.loseCount();
}

// Looking costs more than an operation, so it is done now and then; `all`: the device is known to be idle.
// Returns who has left without the collective that is the next to end.
LaunchWatchdog::Absence LaunchWatchdog::reap(bool all) {
  constexpr double kRestSeconds = 0.1;
  constexpr double kPatienceSeconds = 0.5;
  const uint64_t now = platform::ticks();
  const std::lock_guard lock(logMutex_);
  const bool due = platform::tickSeconds(now - lookedTicks_) > kRestSeconds;
  if (log_.oldest() == nullptr || (!all && !due)) return {};
  constexpr executors::cuda::KernelCounts kAll{UINT64_MAX, UINT64_MAX};
  const executors::cuda::KernelCounts ended = all ? kAll : side_->finished();
  const LaunchLog::Entry* oldest = log_.oldest();
  for (; oldest != nullptr && oldest->isDone(ended); oldest = log_.oldest()) {
    flight_.end(oldest->place, kOkStatus, now);
    log_.drop();
  }
  lookedTicks_ = platform::ticks();
  const LaunchLog::Entry* next = log_.oldestCollective();
  const bool stuck = next != nullptr && platform::tickSeconds(now - next->ticks) > kPatienceSeconds;
  return stuck ? absence(next->sequence) : Absence{};
}

// What a rank has not called when it finalises, or gives up, it never will.
LaunchWatchdog::Absence LaunchWatchdog::absence(uint64_t sequence) const {
  for (const Peer& peer : connections_.peers) {
    if (peer.rank != self_.rank() && callsNothingMore(peer.header()) &&
        connections_.operationLog(peer.rank).last() < sequence) {
      return {peer.rank, connections_.operationLog(self_.rank()).find(sequence)};
    }
  }
  return {};
}

// Ranks, a bit each, that do nothing any more, as they have left or given up.
uint64_t LaunchWatchdog::gone() const {
  uint64_t gone = 0;
  for (const Peer& peer : connections_.peers) {
    const bool doesNothing = hasGone(peer.header()) || hasFailed(peer.header());
    if (peer.rank != self_.rank() && doesNothing) gone |= uint64_t{1} << peer.rank;
  }
  return gone;
}

bool LaunchWatchdog::noteAbsence(const Absence& absence) {
  if (health_.state() != State::kReady) return false;
  const int rank = self_.rank();
  const int gone = absence.gone;
  const bool hasFailedThere = hasFailed(connections_.peers[static_cast<size_t>(gone)].header());
  const std::string words =
      hasFailedThere
          ? "rank " + std::to_string(rank) + " waits for rank " + std::to_string(gone) +
                ", which has given up on this communicator; its own error says why"
          : waitsForWhoFinalised(rank, gone, inWords(absence.mine), isWaitForSignals(absence.mine));
  health_.strike({Code::kRemote, static_cast<int16_t>(gone)}, words);
  return true;
}

bool LaunchWatchdog::noteReport() {
  const DeviceSide* const side = abortable_.load();
  if (side == nullptr) return false;
  const executors::cuda::Report report = side->report();
  if (report.status.ok() || health_.state() != State::kReady) return false;
  health_.strike(report.status, wordsOf(report, connections_, self_.rank()));
  return true;
}

Status LaunchWatchdog::look() {
  bool mine = false;
  {
    const std::lock_guard lock(sideMutex_);
    if (side_ == nullptr) return kOkStatus;
    const Absence absence = side_->report().status.ok() ? reap(false) : Absence{};
    mine = absence.gone >= 0 ? noteAbsence(absence) : noteReport();
    if (!mine && health_.state() == State::kReady) STRETTO_TRY(verifyReads());
  }
  if (mine) health_.notifyPeers("gave up in a kernel");
  return kOkStatus;
}

// Kernels that read peers' registered windows cannot see that a peer had failed, and its caller had written
// there, while they read; who asks after them can. The reason comes by liveness and then is the error; until
// then this is the answer, and it is not kept. A revoke comes in no other way.
Status LaunchWatchdog::verifyReads() const {
  if (!readsPeers_.load()) return kOkStatus;
  for (const Peer& peer : connections_.peers) {
    WindowHeader& window = peer.header();
    const uint32_t failed = std::atomic_ref(window.failed).load(std::memory_order_acquire) |
                            std::atomic_ref(window.abort).load(std::memory_order_acquire);
    if (peer.rank == self_.rank() || failed == 0) continue;
    return failAbout(peer.rank, Code::kRemote,
                     "rank %d: rank %d has given up on this communicator; operations that read its "
                     "registered windows since may have read anything",
                     self_.rank(), peer.rank);
  }
  return kOkStatus;
}

// Asks as a user's watchdog would once somebody has left.
bool LaunchWatchdog::watch() {
  if (somebodyLeft_.load()) (void)look();
  if (noteDisagreement()) health_.notifyPeers("waited for what its peers will not do");
  if (plane_.isSpread() && noteBrokenLink()) health_.notifyPeers("lost its link to another host");
  return health_.state() <= State::kReady;
}

// Once a kernel has waited for long: whether peers have called something else, which kernels of other forms
// do not see, or kernels wait for each other without an end, this rank's among them. True if that became this
// communicator's error now.
bool LaunchWatchdog::noteDisagreement() {
  const std::lock_guard lock(sideMutex_);
  if (side_ == nullptr || health_.state() != State::kReady) return false;
  const bool waits =
      side_->publishWaits([this](uint32_t launch, WaitingLaunch& what) { return reportWaits(launch, what); });
  warnOfLateLaunch();
  if (!waits) return false;
  plane_.askOtherHosts();
  const int rank = self_.rank();
  const auto disagrees = [&](int peer, const std::string& words) {
    health_.strike({Code::kInvalidUsage, static_cast<int16_t>(peer)}, words);
    return true;
  };
  const OperationLog mine = connections_.operationLog(rank);
  for (const Peer& peer : connections_.peers) {
    const Difference calls = mine.firstDifferenceTo(connections_.operationLog(peer.rank));
    if (!calls.found()) continue;
    return disagrees(peer.rank, ranksDisagree(rank, inWords(calls.mine), peer.rank, inWords(calls.theirs)));
  }
  const auto [members, gone] = side_->standstill(this->gone());
  if (gone >= 0) return noteAbsence(Absence{gone, currentCall(connections_.header())});
  if (members == 0) return false;
  std::atomic_ref(connections_.header().wait.disagreeing).store(members, std::memory_order_release);
  return disagrees(std::countr_zero(members & ~(uint64_t{1} << rank)),
                   ranksStandStill(connections_.peers, RankSet::ofBits(members), rank));
}

// Most likely the peer has died or aborted, and word of that has come another way by now.
bool LaunchWatchdog::noteBrokenLink() {
  std::string words;
  std::string net;
  int peer = -1;
  {
    const std::lock_guard lock(sideMutex_);
    if (side_ == nullptr || health_.state() != State::kReady) return false;
    peer = side_->brokenFor(kSecondHandSeconds, words);
    if (peer < 0) return false;
    net = connections_.far.front()->netName();
  }
  const std::string host = plane_.hostOf(peer);
  if (host.empty()) return false;
  health_.strike({Code::kRemote, static_cast<int16_t>(peer)},
                 "rank " + std::to_string(self_.rank()) + " has lost its link over " + net + " to rank " +
                     std::to_string(peer) + " (host " + host + "): " + words);
  return true;
}

// What the kernel of a launch was called as, also to peers that will say so in words.
bool LaunchWatchdog::reportWaits(uint32_t launch, WaitingLaunch& what) {
  const std::lock_guard lock(logMutex_);
  const LaunchLog::Entry* const entry = log_.ofLaunch(launch);
  if (entry == nullptr) return false;
  what = log_.describe(*entry);
  if (what.isTransfers) {
    recordTransfer(connections_.header().wait, entry->first);
    return true;
  }
  const CallRecord call = connections_.operationLog(self_.rank()).find(entry->sequence);
  if (call.sequence != 0) recordCall(connections_.header(), call);
  return true;
}

// On the device's thread, once in each wait: users see a job that waits, not one that is silent.
void LaunchWatchdog::warnOfLateLaunch() {
  const LateLaunch::Found late = side_->late();
  if (late.launch == 0) return;
  STRETTO_LOG(
      kWarn, kColl, "%s",
      waitsForLong(self_.rank(), late.seconds, RankSet::ofBits(late.peers), lateCallInWords(late)).c_str());
}

// With what is missing there. A rank may have called it and not come to it yet: its GPU has other work
// before.
std::string LaunchWatchdog::lateCallInWords(const LateLaunch::Found& late) {
  uint64_t sequence = 0;
  {
    const std::lock_guard lock(logMutex_);
    const LaunchLog::Entry* const entry = log_.ofLaunch(late.launch);
    if (entry == nullptr) return "an operation of a CUDA graph";
    if (entry->sequence == 0) return inWords(entry->first);
    sequence = entry->sequence;
  }
  RankSet missing;
  for (const Peer& peer : connections_.peers) {
    if (peer.rank != self_.rank() && connections_.operationLog(peer.rank).last() < sequence)
      missing.add(peer.rank);
  }
  const CallRecord call = connections_.operationLog(self_.rank()).find(sequence);
  return (call.sequence != 0 ? inWords(call) : "operation #" + std::to_string(sequence)) +
         (!missing.empty()
              ? " (not entered by " + ranksInWords(missing) + ")"
              : " (every rank has called it; the GPU of " + ranksInWords(RankSet::ofBits(late.peers)) +
                    " has not come to it, or not to the end of its part)");
}

// Kernels give up at their own deadlines, and at an abort. Work of the user's that lies before them has no
// deadline, so that the wait has one.
bool LaunchWatchdog::finish() {
  constexpr double kLongest = 60;
  constexpr double kAfterAbort = 0.5;
  constexpr double kLongestForPeers = 10;
  if (side_ == nullptr) return true;
  const bool done = side_->idle(kLongest, [&] {
    (void)look();
    return health_.isAborted();
  }) || side_->idle(kAfterAbort);
  (void)look();
  if (!done || health_.state() != State::kReady) return done;
  (void)reap(true);
  const auto isAborted = [&] { return health_.isAborted(); };
  if (!side_->leave(kLongestForPeers, isAborted) && !isAborted()) {
    STRETTO_LOG(
        kWarn, kInit,
        "rank %d leaves although not all that it has sent has left its host within %g s: it may be lost",
        self_.rank(), kLongestForPeers);
  }
  const int peer = side_->awaitPeers(kLongestForPeers);
  if (peer >= 0 && !isAborted()) {
    STRETTO_LOG(kWarn, kInit,
                "rank %d leaves although rank %d has not opened its device window within %g s: what it has "
                "sent may be lost",
                self_.rank(), peer, kLongestForPeers);
  }
  return true;
}

}  // namespace stretto::communicator
