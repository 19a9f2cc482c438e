// Why a wait does not end, in words: what this rank runs, what its peers say they run.
#include <string>

#include "base/log.hpp"
#include "platform/futex.hpp"
#include "primitives/disagreement.hpp"
#include "primitives/ending.hpp"
#include "primitives/host/host.hpp"

namespace stretto {
namespace {

RankSet pairOf(int one, int other) {
  RankSet both = RankSet::of(one);
  both.add(other);
  return both;
}

}  // namespace

Status Host::mismatch(int peer) const {
  const WindowHeader& other = peers_[static_cast<size_t>(peer)].header();
  const Difference calls = firstDifference(header(), other);
  if (calls.found()) return mismatch(peer, calls);
  reportDisagreeing(pairOf(rank_, peer));
  const CallRecord theirs = recordedCall(other, sequence_);
  return mismatch(peer, {sequence_ != 0 ? recordedCall(header(), sequence_) : currentCall(header()),
                         theirs.sequence != 0 ? theirs : currentCall(other)});
}

// For those whose own calls do not show it. Of ranks that the word does not hold they hear when this rank has
// given up, which names one of them.
void Host::reportDisagreeing(const RankSet& members) const {
  std::atomic_ref(header().wait.disagreeing).store(members.bits(), std::memory_order_release);
}

void Host::disagrees(int peer, const CallRecord& transfer) const {
  recordTransfer(header().wait, transfer);
  reportDisagreeing(pairOf(rank_, peer));
}

Status Host::mismatch(int peer, const Difference& calls) const {
  return failAbout(peer, Code::kInvalidUsage, "%s",
                   ranksDisagree(rank_, inWords(calls.mine), peer, inWords(calls.theirs)).c_str());
}

// Ranks wait for each other without an end, this one among them or for one of them.
Status Host::parted(int peer, const RankSet& members) const {
  return failAbout(peer, Code::kInvalidUsage, "%s", ranksStandStill(peers_, members, rank_).c_str());
}

// A peer that gave up because of a third one is not the cause: this rank's own word of that one is under way.
bool Host::hasGivenUp(const Peer& other, Doubts& doubts) const {
  const Code code =
      statusOfAbort(std::atomic_ref(other.header().failed).load(std::memory_order_acquire)).code;
  if (code == Code::kOk) return false;
  if (doubts.since == 0) doubts.since = platform::ticks();
  return code == Code::kInvalidUsage ||
         platform::tickSeconds(platform::ticks() - doubts.since) > kSecondHandSeconds;
}

// Of several transfers none ends the wait for another one: each needs its own peer.
bool Host::hasLeft(const Peer& other, const AwaitedWord& awaited) const {
  if (!hasBegunToLeave(other.header())) return false;
  return sequence_ == 0 ? awaited.ranks(ranks()).has(other.rank)
                        : lastRecordedCall(other.header()) < sequence_;
}

// What a rank that has left did last may have arrived since the caller looked: it looks once more. What comes
// over a network may come after the word that its sender has left.
bool Host::mayStillCome(Doubts& doubts) const {
  if (doubts.missed++ == 0) {
    doubts.missedSince = platform::ticks();
    return true;
  }
  return policy_.polls && platform::tickSeconds(platform::ticks() - doubts.missedSince) < kSecondHandSeconds;
}

// A peer has failed, and nothing tells this rank why but the peer's own word: a code, and whom it blames.
Status Host::hasFailed(int lost) const {
  const WindowHeader& other = peers_[static_cast<size_t>(lost)].header();
  const Status why =
      statusOfAbort(std::atomic_ref(const_cast<uint32_t&>(other.failed)).load(std::memory_order_acquire));
  const bool blames = why.peer >= 0 && why.peer < ranks() && why.peer != lost;
  if (why.code == Code::kInvalidUsage && blames) {
    const std::string theirs = inWords(currentCall(peers_[static_cast<size_t>(why.peer)].header()));
    return failAbout(lost, why.code, "%s",
                     ranksDisagree(lost, inWords(currentCall(other)), why.peer, theirs).c_str());
  }
  const std::string because = blames ? " because of rank " + std::to_string(why.peer) : "";
  return failAbout(blames ? why.peer : lost, Code::kRemote,
                   "rank %d: rank %d has given up on this communicator%s (%s); its own error says why", rank_,
                   lost, because.c_str(), nameOf(why.code));
}

Status Host::disagreement(Doubts& doubts, const AwaitedWord& awaited) const {
  int lost = -1, gone = -1;
  for (const Peer& other : peers_) {
    if (other.rank == rank_ || !sight_.hears(other)) continue;
    if (lost < 0 && hasGivenUp(other, doubts)) lost = other.rank;
    if (hasLeft(other, awaited) && !isOnItsWay(other.rank)) gone = other.rank;
  }
  // After that look: what a rank has given up because of was called before.
  for (const Peer& other : peers_) {
    if (!sight_.hears(other)) continue;
    const Difference calls = firstDifference(header(), other.header());
    if (calls.found()) return mismatch(other.rank, calls);
  }
  for (const Peer& other : peers_) {
    if (other.rank == rank_ || !sight_.hears(other)) continue;
    const RankSet members = disagreeingAt(other.header(), ranks());
    if (!members.empty()) return parted(other.rank, members);
  }
  if (lost >= 0) return hasFailed(lost);
  if (gone < 0 || mayStillCome(doubts)) return kOkStatus;
  const bool isFirst = sequence_ != 0 || awaited.peer == gone;
  const bool isForSignals = sequence_ == 0 && isFirst && isWaitForSignals(currentCall(header()));
  const std::string call = isFirst ? current() : "transfers of one group";
  return failAbout(gone, Code::kRemote, "%s", waitsForWhoFinalised(rank_, gone, call, isForSignals).c_str());
}

std::string Host::current() const {
  const CallRecord mine = sequence_ != 0 ? recordedCall(header(), sequence_) : currentCall(header());
  return sequence_ == 0 && !isTransfer(mine) ? "a point-to-point transfer" : inWords(mine);
}

Status Host::givenUp() const {
  return statusOfAbort(std::atomic_ref(header().abort).load(std::memory_order_acquire));
}

// Not ok once this rank knows why a peer does not do its part: most likely it or a third rank has died or
// aborted, and word of that comes through liveness. Ok if nothing is known after half a second.
Status Host::reasonSoon(int peer) const {
  constexpr uint64_t kSliceMicroseconds = 5000;
  const uint64_t began = platform::ticks();
  WindowHeader& window = header();
  Doubts doubts;
  if (policy_.polls) doubts.missed = 1;  // nothing comes any more over a link that broke
  wonder(AwaitedWord{}.ranks(ranks()));
  while (platform::tickSeconds(platform::ticks() - began) < kSecondHandSeconds) {
    const uint32_t bell = std::atomic_ref(window.bell).load(std::memory_order_acquire);
    if (std::atomic_ref(window.abort).load(std::memory_order_acquire) != 0) return givenUp();
    STRETTO_TRY(disagreement(doubts, {.peer = peer}));
    platform::futexWait(&window.bell, bell, kSliceMicroseconds);
  }
  return kOkStatus;
}

// Buffers of a peer cannot be read, or not any more.
Status Host::peerFailed(int peer, const std::string& what, Code code) const {
  STRETTO_TRY(reasonSoon(peer));
  return failAbout(peer, code, "rank %d cannot go on in %s with rank %d: %s", rank_, current().c_str(), peer,
                   what.c_str());
}

// Whose part is missing, in words.
std::string Host::missingPart(int peer) const {
  if (sequence_ == 0 && peer < 0) return "nothing came";
  if (sequence_ == 0)
    return "its last call: " + inWords(currentCall(peers_[static_cast<size_t>(peer)].header()));
  RankSet missing;
  for (const Peer& other : peers_) {
    if (other.rank != rank_ && lastRecordedCall(other.header()) < sequence_) missing.add(other.rank);
  }
  return missing.empty() ? "every rank has entered it" : "not entered by " + ranksInWords(missing);
}

Status Host::timedOut(int peer) const {
  const double limit = platform::tickSeconds(policy_.timeoutTicks);
  return failAbout(
      peer, Code::kTimeout,
      "rank %d waited %.1f s for rank %d in %s (%s). Look at the missing rank with `stretto doctor`; "
      "STRETTO_TIMEOUT sets the limit.",
      rank_, limit, peer, current().c_str(), missingPart(peer).c_str());
}

// A wait that goes on.
void Host::warnOf(int peer, uint64_t waitedTicks) const {
  STRETTO_LOG(
      kWarn, kColl, "%s",
      waitsForLong(rank_, platform::tickSeconds(waitedTicks), peer < 0 ? RankSet() : RankSet::of(peer),
                   current() + " (" + missingPart(peer) + ")")
          .c_str());
}

}  // namespace stretto
