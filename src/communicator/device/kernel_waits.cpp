// When is it certain that kernels of some ranks wait for each other without an end? This is the argument.
//
// Words. Kernels of one communicator run one after the other on each rank. A rank publishes one launch: the
// one whose kernel waits. A look is one load, by a thread of a kernel, of what that thread waits for. A look
// in vain finds that it has not come.
//
// What B's published launch cannot do for A. Rank A waits for rank B, and B's published launch does not end
// that wait, in four cases:
//
//   a. A's launch is a collective, and B's launch moves messages.
//   b. A sends to B, and B's launch is a collective, or receives nothing from A. (If B receives any message
//      from A, that makes room for what A sends, also if the message was an earlier one. Programs may rely on
//      that room, so such an A may go on.)
//   c. A receives from B, and B's launch is a collective, or sends nothing to A, or sends only messages that
//      A had received before its own launch. Counts of messages say which those are.
//   d. A waits for a signal of B. Launches that send signals do not wait, so they are not published.
//
// The claim. Take a set of ranks, and a moment T, such that
//
//   i.   each rank of the set has published its launch at T, and that launch is still the published one now;
//   ii.  each rank A of the set waits for some other rank B of the set in one of the cases a to d;
//   iii. a thread of A's launch has made a look for B in vain, and it made that look after T.
//
// Then no wait of the set ever ends:
//
//   1. B's published launch had begun at T. So all earlier kernels of B had ended before T.
//   2. What those kernels did is visible to A's look, because that look was made after T. The look was in
//      vain. So nothing that B did before its published launch ends A's wait.
//   3. B's published launch does not end it either (a to d). So A waits for a kernel of B that comes after
//      the published one.
//   4. Hence A's kernel can end only after B's published kernel has ended. This holds for each A of the set,
//      and B is in the set, too. So none of these kernels can be the first of them to end.
//
// Which counted look was made after T? A thread looks, and then stores a word that says so. The process of
// its rank reads that word twenty times a second, and counts one look for each word that differs from the one
// before. Between look and word the GPU may stand still for any time, and between read and count the process
// may. Three facts bound that:
//
//   x. While the GPU runs, all threads of a kernel run, and each comes from its look to its word within a few
//      microseconds.
//   y. Whenever the GPU goes on, it runs for longer than that.
//   z. Two reads of one process are 50 ms apart.
//
// Call a word old if its look was made before T. By x and y an old word that is stored after T lies in one of
// two short spans: the first microseconds after T, which end when the GPU stands still, or the first
// microseconds after it has gone on. By z no span holds two reads. Number the looks that are counted after T:
//
//   1st: its word may have been read before T.
//   2nd: its word was read after T, and may have been stored before T.
//   3rd: its word was stored after the second read. If it is old, read and word lie in the first span at the
//        earliest.
//   4th: its word was stored after the third read, which does not lie in the first span. If it is old, it
//        lies in the second span.
//   5th: its word was stored after the fourth read. If it is old, read and word lie in the second span.
//   6th: its word was stored after the fifth read, which does not lie in the second span. So it is not old.
//
// So A has looked in vain after T once six looks were counted after T (Standstill::kLooks). The same six
// looks show that A waits in vain for a rank that was gone at T, for none of its kernels runs any more.
//
// Two more conditions make this hold. "The same launch" means what it says, because every launch has its own
// number; launches of CUDA graphs run again under the same number, so they are never published. And counts of
// messages are used only while they are complete: nobody counts the messages of a graph, so from the first
// one that is captured on a rank's counts are not used.
//
// tests/model/kernel_waits_test.cpp runs the looks in every order, and shows what goes wrong with fewer.
#include "communicator/device/kernel_waits.hpp"

#include <algorithm>
#include <atomic>

namespace stretto::communicator {
namespace {

using stretto::cuda::Awaited;
using stretto::cuda::awaitedAt;
using stretto::cuda::kAwaited;

std::atomic_ref<uint64_t> word(const uint64_t& at) {
  return std::atomic_ref(const_cast<uint64_t&>(at));
}
bool holds(uint64_t ranks, size_t rank) {
  return (ranks >> rank & 1) != 0;
}
void copy(const std::array<uint64_t, kMaxRanks>& from, std::array<uint64_t, kMaxRanks>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    word(to[i]).store(word(from[i]).load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
}
void copy(const MessageCounts& from, MessageCounts& to) {
  copy(from.sent, to.sent);
  copy(from.received, to.received);
}

}  // namespace

bool KernelWaitsOf::publish(const Looks& now, const Find& find) {
  const auto isNew = [&](size_t i) { return now[i].word() != before_[i].word(); };
  uint32_t launch = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    if (isNew(i)) launch = std::max(launch, now[i].launch);
  }
  if (launch == 0) return false;
  if (launch != word(published_.launch).load(std::memory_order_relaxed)) {
    WaitingLaunch what;
    if (!find(launch, what)) return false;
    word(published_.launch).store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    word(published_.isTransfers).store(what.isTransfers ? 1 : 0, std::memory_order_relaxed);
    word(published_.isOfSignals).store(what.isOfSignals ? 1 : 0, std::memory_order_relaxed);
    word(published_.isCounted).store(what.isCounted ? 1 : 0, std::memory_order_relaxed);
    copy(what.before, published_.before);
    copy(what.with, published_.with);
    word(published_.launch).store(launch, std::memory_order_release);
  }
  for (size_t i = 0; i < now.size(); ++i) {
    if (!isNew(i)) continue;
    if (now[i].launch == launch) word(published_.looks[i]).fetch_add(1, std::memory_order_release);
    before_[i] = now[i];
  }
  return true;
}

// Launch 0 where its words change just now.
Standstill::Seen Standstill::read(const KernelWaits& waits) {
  Seen seen;
  seen.launch = word(waits.launch).load(std::memory_order_acquire);
  seen.what.isTransfers = word(waits.isTransfers).load(std::memory_order_relaxed) != 0;
  seen.what.isOfSignals = word(waits.isOfSignals).load(std::memory_order_relaxed) != 0;
  seen.what.isCounted = word(waits.isCounted).load(std::memory_order_relaxed) != 0;
  copy(waits.before, seen.what.before);
  copy(waits.with, seen.what.with);
  for (size_t i = 0; i < seen.looks.size(); ++i) {
    seen.looks[i] = word(waits.looks[i]).load(std::memory_order_acquire);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (word(waits.launch).load(std::memory_order_relaxed) != seen.launch) seen.launch = 0;
  return seen;
}

bool Standstill::awaits(size_t rank, const Picture& now, Awaited what, size_t peer) const {
  const auto at = static_cast<size_t>(awaitedAt(what, static_cast<int>(peer)));
  return now[rank].looks[at] >= first_[rank].looks[at] + kLooks;
}

bool Standstill::needs(size_t rank, const Picture& now, size_t peer) const {
  const WaitingLaunch& mine = now[rank].what;
  const WaitingLaunch& theirs = now[peer].what;
  if (!mine.isTransfers) return theirs.isTransfers && awaits(rank, now, Awaited::kPeer, peer);
  const bool receivesNone = !theirs.isTransfers || theirs.with.received[rank] == theirs.before.received[rank];
  const bool areCounted = mine.isCounted && theirs.isCounted;
  const bool sendsNoneDue = mine.isOfSignals || !theirs.isTransfers ||
                            theirs.with.sent[rank] == theirs.before.sent[rank] ||
                            (areCounted && theirs.with.sent[rank] <= mine.before.received[peer]);
  return (awaits(rank, now, Awaited::kReceiver, peer) && receivesNone) ||
         (awaits(rank, now, Awaited::kSender, peer) && sendsNoneDue);
}

uint64_t Standstill::needed(size_t rank, const Picture& now, uint64_t waiting) const {
  uint64_t needed = 0;
  for (size_t peer = 0; peer < kMaxRanks; ++peer) {
    if (holds(waiting, peer) && peer != rank && needs(rank, now, peer)) needed |= uint64_t{1} << peer;
  }
  return needed;
}

int Standstill::absentee(size_t rank, const Picture& now) const {
  if (now[rank].launch == 0 || now[rank].launch != first_[rank].launch) return -1;
  for (size_t peer = 0; peer < kMaxRanks; ++peer) {
    const bool inVain = awaits(rank, now, Awaited::kPeer, peer) ||
                        awaits(rank, now, Awaited::kReceiver, peer) ||
                        awaits(rank, now, Awaited::kSender, peer);
    if (holds(firstGone_, peer) && inVain) return static_cast<int>(peer);
  }
  return -1;
}

Standstill::Found Standstill::find(int rank, std::span<const KernelWaits* const> all, uint64_t gone) {
  Picture now{};
  for (size_t i = 0; i < all.size(); ++i) now[i] = read(*all[i]);
  uint64_t members = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (now[i].launch != 0 && now[i].launch == first_[i].launch) members |= uint64_t{1} << i;
  }
  const uint64_t waiting = members;
  std::array<uint64_t, kMaxRanks> needs{};
  for (size_t i = 0; i < all.size(); ++i) needs[i] = holds(waiting, i) ? needed(i, now, waiting) : 0;
  for (bool shrinks = true; shrinks;) {
    const uint64_t before = members;
    for (size_t i = 0; i < all.size(); ++i) {
      if ((needs[i] & members) == 0) members &= ~(uint64_t{1} << i);
    }
    shrinks = members != before;
  }
  const auto self = static_cast<size_t>(rank);
  const Found found{holds(members, self) ? members : 0, absentee(self, now)};
  const bool goesOn = now[self].launch == first_[self].launch && gone == firstGone_;
  if (!goesOn) window_ = kWindow;
  if (++age_ >= window_) {
    age_ = 0;
    if (goesOn) window_ = std::min(2 * window_, kMostWindow);
    first_ = now;
    firstGone_ = gone;
  }
  return found;
}

}  // namespace stretto::communicator
