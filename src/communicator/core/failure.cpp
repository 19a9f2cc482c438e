// Why a communicator fails, in words, and who is told.
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "communicator/core/communicator.hpp"
#include "platform/fork.hpp"
#include "platform/futex.hpp"
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

}  // namespace

// The first error stays; later ones are its consequences.
void Communicator::markBroken(Status why, State state, const std::string& text) {
  Status first;
  {
    std::lock_guard lock(errorMutex_);
    if (errorCode_ == Code::kOk) {
      errorCode_ = why.code;
      errorPeer_ = why.peer;
      errorText_ = text;
    }
    first = {errorCode_, errorPeer_};
  }
  advance(state);
  if (WindowHeader* header = header_.load(); header != nullptr) {
    std::atomic_ref(header->failed).store(abortWord(first.ok() ? Status{Code::kAborted} : first));
    if (isSpread()) show(0);
  }
}

void Communicator::raiseAbort(Status why) {
  uint32_t none = 0;
  abort_.compare_exchange_strong(none, abortWord(why));
  stopOperations(abort_.load());
}

// Ends the waits of operations; exchanges with the others stay possible.
void Communicator::stopOperations(uint32_t word) {
  if (DeviceSide* device = abortable_.load(); device != nullptr) device->abort(word);
  turns_.wake();
  WindowHeader* const header = header_.load();
  if (header == nullptr) return;
  std::atomic_ref(header->abort).store(word, std::memory_order_seq_cst);
  std::atomic_ref(header->bell).fetch_add(1, std::memory_order_seq_cst);
  platform::futexWake(&header->bell);
}

// If a lost rank has given up because ranks disagree, and the calls of this one show that too, its words for
// it: its own waits may not have come that far. Any thread.
std::string Communicator::disagreementBehind(int lost) const {
  WindowHeader* const header = header_.load();
  if (header == nullptr) return "";
  WindowHeader& theirs = connections_.peers[static_cast<size_t>(lost)].header();
  if (statusOfAbort(std::atomic_ref(theirs.failed).load()).code != Code::kInvalidUsage) return "";
  const OperationLog mine = connections_.operationLog(rank_);
  for (const Peer& peer : connections_.peers) {
    const Difference calls = onDevice() ? mine.firstDifferenceTo(connections_.operationLog(peer.rank))
                                        : firstDifference(*header, peer.header());
    if (calls.found()) return ranksDisagree(rank_, inWords(calls.mine), peer.rank, inWords(calls.theirs));
  }
  const uint64_t members = disagreeingAt(theirs, ranks_);
  if (members != 0) return ranksStandStill(connections_.peers, members, rank_);
  return "";
}

// On the bootstrap's thread.
void Communicator::peerLost(const bootstrap::PeerLoss& loss) {
  char text[1200];
  snprintf(text, sizeof text, "rank %d lost rank %d (host %s, process %u): %s", rank_, loss.rank,
           loss.host.c_str(), loss.pid, loss.reason.c_str());
  {
    std::lock_guard lock(errorMutex_);
    lost_.emplace(loss.rank, text);
  }
  if (WindowHeader* header = header_.load(); header != nullptr) {
    std::atomic_ref(header->lost).fetch_or(uint64_t{1} << loss.rank);
  }
  (void)noteReport();
  const std::string disagreement = disagreementBehind(loss.rank);
  const std::string words = disagreement.empty() ? text : disagreement;
  const Code code = disagreement.empty() ? Code::kRemote : Code::kInvalidUsage;
  if (state() == State::kReady || state() == State::kInitialising) {
    markBroken({code, static_cast<int16_t>(loss.rank)}, State::kFailed, words);
  }
  flight_.note(words.c_str());
  raiseAbort({code, static_cast<int16_t>(loss.rank)});
}

Status Communicator::explainFailure(const Operation& operation, Status status) {
  std::string text = lastError();
  std::string what = nameOf(operation.collective);
  if (operation.isCollective()) what += " #" + std::to_string(sequence_);
  const bool live = state() == State::kReady || state() == State::kFailed;
  const uint32_t word = abort_.load();
  const bool isReported = word != 0 && statusOfAbort(word).code == status.code;
  if (status.code == Code::kAborted) {
    text = "rank " + std::to_string(rank_) + ": " + what +
           " was ended by ncclCommAbort or ncclCommRevoke of this rank";
  } else if (status.code == Code::kRemote || status.code == Code::kSystem || isReported) {
    if (live) markBroken(status, State::kFailed, text);  // unless the reason is known
    std::string reason = nameOperation(what + " did not finish");
    if (!reason.empty()) {
      text = std::move(reason);
      status.code = error(nullptr).code;
    }
  }
  setLastError(text);
  flight_.note(text.c_str());
  if (live) markBroken(status, State::kFailed, text);
  return status;
}

// A loss is told without knowing what runs; the first operation that it ends, or keeps from starting, is
// added.
std::string Communicator::nameOperation(const std::string& words) {
  std::lock_guard lock(errorMutex_);
  if (errorCode_ == Code::kRemote && !std::exchange(errorNamesOperation_, true)) errorText_ += "; " + words;
  return errorText_;
}

Status Communicator::refuse(const Operation& operation, Status status) {
  const bool isForked = forkGeneration_ != platform::forkGeneration();
  if (!isForked && state() == State::kFailed) {
    setLastError(nameOperation(std::string(nameOf(operation.collective)) + " was not started"));
  }
  return status;
}

bool Communicator::noteAbsence(int gone) {
  if (state() != State::kReady) return false;
  const WindowHeader& theirs = connections_.peers[static_cast<size_t>(gone)].header();
  char text[300];
  snprintf(text, sizeof text, "rank %d waits for rank %d, which has %s", rank_, gone,
           hasFailed(theirs)
               ? "given up on this communicator; its own error says why"
               : "finalised its communicator without calling the same operation: all ranks of a "
                 "communicator must make the same calls");
  markBroken({Code::kRemote, static_cast<int16_t>(gone)}, State::kFailed, text);
  flight_.note(text);
  raiseAbort({Code::kRemote, static_cast<int16_t>(gone)});
  return true;
}

// True if it became this communicator's error now. Also on the bootstrap's thread.
bool Communicator::noteReport() {
  const DeviceSide* device = abortable_.load();
  if (device == nullptr) return false;
  const executors::cuda::Report report = device->report();
  if (report.status.ok() || state() != State::kReady) return false;
  const std::string text = wordsOf(report);
  markBroken(report.status, State::kFailed, text);
  flight_.note(text.c_str());
  raiseAbort(report.status);
  return true;
}

std::string Communicator::wordsOf(const executors::cuda::Report& report) const {
  const CallRecord mine = connections_.operationLog(rank_).find(report.sequence);
  const bool ofSignals = report.sequence == executors::cuda::Report::kSignals;
  const std::string what = ofSignals              ? "a wait for signals"
                           : report.sequence == 0 ? "a point-to-point transfer"
                           : mine.sequence != 0   ? inWords(mine)
                                                  : "operation #" + std::to_string(report.sequence);
  const int peer = report.status.peer;
  const bool known = peer >= 0 && peer < ranks_;
  const std::string whom = known ? "rank " + std::to_string(peer) : "its peers";
  const std::string me = "rank " + std::to_string(rank_);
  switch (report.status.code) {
    case Code::kInvalidUsage: {
      if (ofSignals) return me + " waits for more signals of its own than it has sent itself";
      const CallRecord theirs =
          known ? calledInstead(connections_.operationLog(peer), mine, report.theirTag) : CallRecord{};
      return ranksDisagree(rank_, what, peer, inWords(theirs));
    }
    case Code::kTimeout:
      return me + " waited longer than STRETTO_TIMEOUT for " + whom + " in " + what +
             (known ? calledElsewhere(connections_.operationLog(peer), mine, whom) : "") + ". Look at " +
             (known ? "that rank" : "them") + " with `stretto doctor`.";
    case Code::kRemote:
      return me + ": " + whom + " has given up or was lost in " + what;
    case Code::kAborted:
      return me + ": " + what + " was ended by an abort";
    default:
      return me + ": the kernel of " + what + " failed (" + nameOf(report.status.code) + ")";
  }
}

// On the device's thread, once in each wait: users see a job that waits, not one that is silent.
void Communicator::warnOfLateLaunch() {
  const LateLaunch::Found late = device_->late();
  if (late.launch == 0) return;
  STRETTO_LOG(kWarn, kColl, "%s",
              waitsForLong(rank_, late.seconds, late.peers, lateCallInWords(late)).c_str());
}

// With what is missing there. A rank may have called it and not come to it yet: its GPU has other work
// before.
std::string Communicator::lateCallInWords(const LateLaunch::Found& late) {
  uint64_t sequence = 0;
  {
    const std::lock_guard lock(launchMutex_);
    const LaunchLog::Entry* const entry = launches_.ofLaunch(late.launch);
    if (entry == nullptr) return "an operation of a CUDA graph";
    if (entry->sequence == 0) return inWords(entry->first);
    sequence = entry->sequence;
  }
  uint64_t missing = 0;
  for (const Peer& peer : connections_.peers) {
    if (peer.rank != rank_ && connections_.operationLog(peer.rank).last() < sequence)
      missing |= uint64_t{1} << peer.rank;
  }
  const CallRecord call = connections_.operationLog(rank_).find(sequence);
  return (call.sequence != 0 ? inWords(call) : "operation #" + std::to_string(sequence)) +
         (missing != 0 ? " (not entered by " + ranksInWords(missing) + ")"
                       : " (every rank has called it; the GPU of " + ranksInWords(late.peers) +
                             " has not come to it, or not to the end of its part)");
}

// What the others are told: with this rank's own error, as it may be the cause of theirs.
std::string Communicator::farewell(const char* what) const {
  std::string own;
  (void)error(&own);
  return own.empty() ? what : std::string(what) + " after an error: " + own;
}

// Peers wait in kernels, which see no host memory: they are told as they are told of a rank that aborts.
void Communicator::notifyPeers(const char* what) {
  std::lock_guard lock(membershipMutex_);
  if (membership_ != nullptr) membership_->sayGoodbye(bootstrap::Leaving::kAborted, farewell(what));
}

}  // namespace stretto::communicator
