// The argument. Kernels of one communicator run one after the other on each rank. A rank publishes the launch
// that waits. A set of ranks stands still if each of them, A, waits for another one of them, B, and B's
// published launch does not do that for which A waits, because
//
//   * A's kernel is a collective's, and B's moves messages; or
//   * A sends to B, and B's kernel is a collective's, or receives nothing from A. Any message that B receives
//     makes room for what A sends, also one that A sent before: programs may rely on such room; or
//   * A receives from B, and B's kernel is a collective's, or sends nothing to A, or nothing that A had not
//     received before its own launch, by their counts of messages.
//
// All launches of the set were published at a moment T, and after T a thread of A's launch has looked in vain
// for what it needs of B. From this follows that no wait of the set ever ends:
//
//   1. B's launch had begun at T, so B's earlier kernels had ended by then. What they did is visible to A's
//      look, which found nothing. So A waits for a kernel of B that comes after B's published one.
//   2. So A's kernel ends after B's published kernel has ended. This holds for each of the set, with another
//      one of the set as B: none of these kernels can be the first to end.
//
// When was a look made? A thread looks, and then stores a word that says so; A's process reads the word
// twenty times a second, and counts a look for each word that differs from the one before. The GPU may stand
// still between the look and the word, and the process between the read and the count, for any time. Of the
// looks that are counted after T
//
//   * the first may have been read before T,
//   * the second was read after T, but may have been stored before T,
//   * the third was stored after the second read, so after T, but may have been made before T. So may later
//     ones, if their threads have been between look and word since then. While the GPU runs, all threads of a
//     kernel run, and each needs a few microseconds for that. So the third word was stored in the last
//     microseconds before the GPU stood still, and
//   * the fourth in the first microseconds after it went on, with a read between it and
//   * the fifth. After that all threads have done what they were in the midst of at T.
//   * The sixth was made after T.
//
// By the same looks A waits in vain for a rank that was gone at T: none of its kernels runs any more.
//
// Every launch has its own number, so that "the same launch" means what it says; launches of graphs, which
// run again under the same number, are never published. Messages of graphs are counted by nobody, so that
// from the first one that is captured on a rank's counts are not used.
//
// tests/model/kernel_waits_test.cpp runs the looks in every order, and shows what goes wrong with fewer.
#include "communicator/kernel_waits.hpp"

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
  const bool sendsNoneDue = !theirs.isTransfers || theirs.with.sent[rank] == theirs.before.sent[rank] ||
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
  if (++age_ >= kWindow) {
    age_ = 0;
    first_ = now;
    firstGone_ = gone;
  }
  return found;
}

}  // namespace stretto::communicator
