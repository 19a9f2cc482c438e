// Why a wait does not end, in words: what this rank runs, what its peers say they run.
#include <cinttypes>
#include <string>

#include "platform/futex.hpp"
#include "primitives/announcement.hpp"
#include "primitives/host/host.hpp"

namespace stretto {
namespace {

// How long what a peer only passed on waits for this rank's own word of it.
constexpr double kSecondHandSeconds = 0.5;

std::string inWords(const Announcement& what) {
  if (what.sequence == 0) return "another operation";
  const auto collective = static_cast<Collective>(what.collective % kCollectives);
  char text[200];
  snprintf(text, sizeof text, "#%" PRIu64 " %s %s x %" PRIu64, what.sequence, nameOf(collective),
           nameOf(static_cast<DataType>(what.type % kDataTypes)), what.count);
  std::string words = text;
  if (what.op != 0xff) words += std::string(" ") + nameOf(static_cast<Operator>(what.op % kOperators));
  if (what.root >= 0) words += " root " + std::to_string(what.root);
  return words;
}

}  // namespace

// The first of the latest operations in which the two differ, as far as both still remember it; else what
// each is in now.
Status Host::mismatch(int peer) const {
  const WindowHeader& other = peers_[static_cast<size_t>(peer)].header();
  Announcement mine = announced(header(), sequence_);
  Announcement theirs = announced(other, sequence_);
  if (theirs.sequence == 0) theirs = announced(other, lastAnnounced(other));
  const uint64_t remembered = std::min<uint64_t>(sequence_, WindowHeader::kAnnouncements);
  for (uint64_t sequence = sequence_ - remembered + 1; sequence <= sequence_; ++sequence) {
    const Announcement here = announced(header(), sequence);
    const Announcement there = announced(other, sequence);
    if (here.sequence == 0 || there.sequence == 0 || here.tag == there.tag) continue;
    mine = here;
    theirs = there;
    break;
  }
  return failAbout(
      peer, Code::kInvalidUsage,
      "ranks disagree: rank %d called %s, rank %d called %s. All ranks of a communicator must call the "
      "same operations with the same count, type, operator and root, in the same order.",
      rank_, inWords(mine).c_str(), peer, inWords(theirs).c_str());
}

// A peer that gave up because of a third one is not the cause: this rank's own word of that one is under way.
bool Host::hasGivenUp(const Peer& other, Doubts& doubts) const {
  const auto code = static_cast<Code>(std::atomic_ref(other.header().failed).load(std::memory_order_acquire));
  if (code == Code::kOk) return false;
  if (doubts.since == 0) doubts.since = platform::ticks();
  return code == Code::kInvalidUsage ||
         platform::tickSeconds(platform::ticks() - doubts.since) > kSecondHandSeconds;
}

bool Host::hasLeft(const Peer& other, int waitedFor) const {
  if (std::atomic_ref(other.header().left).load(std::memory_order_acquire) == 0) return false;
  return sequence_ == 0 ? other.rank == waitedFor : lastAnnounced(other.header()) < sequence_;
}

Status Host::disagreement(Doubts& doubts, int waitedFor) const {
  int gone = -1;
  for (const Peer& other : peers_) {
    if (other.rank == rank_) continue;
    if (hasGivenUp(other, doubts)) {
      return failAbout(other.rank, Code::kRemote,
                       "rank %d: rank %d has given up on this communicator (%s); its own error says why",
                       rank_, other.rank, nameOf(static_cast<Code>(other.header().failed)));
    }
    if (hasLeft(other, waitedFor)) gone = other.rank;
    if (sequence_ == 0) continue;  // a point-to-point transfer: others need not take part
    const Announcement theirs = announced(other.header(), sequence_);
    if (theirs.sequence != 0 && theirs.tag != tag_) return mismatch(other.rank);
  }
  // What it did last may have arrived since the caller looked: it looks once more.
  if (gone < 0 || doubts.missed++ == 0) return kOkStatus;
  return failAbout(
      gone, Code::kRemote,
      "rank %d waits in %s for rank %d, which has finalised its communicator without calling it: "
      "all ranks of a communicator must make the same calls",
      rank_, current().c_str(), gone);
}

std::string Host::current() const {
  return sequence_ == 0 ? "a point-to-point transfer" : inWords(announced(header(), sequence_));
}

Status Host::givenUp() const {
  const uint32_t word = std::atomic_ref(header().abort).load(std::memory_order_acquire);
  const auto code = static_cast<Code>(word & 0xff);
  return Status{code, static_cast<int16_t>(static_cast<int>(word >> 8) - 1)};
}

// Memory of a peer could not be read: most likely it has died, and word of it comes through liveness.
Status Host::unreadable(int peer, size_t bytes) const {
  constexpr uint64_t kSliceMicroseconds = 5000;
  const uint64_t began = platform::ticks();
  WindowHeader& window = header();
  while (platform::tickSeconds(platform::ticks() - began) < kSecondHandSeconds) {
    const uint32_t bell = std::atomic_ref(window.bell).load(std::memory_order_acquire);
    if (std::atomic_ref(window.abort).load(std::memory_order_acquire) != 0) return givenUp();
    platform::futexWait(&window.bell, bell, kSliceMicroseconds);
  }
  return failAbout(peer, Code::kRemote, "rank %d: cannot read %zu bytes of rank %d (process %d)", rank_,
                   bytes, peer, peers_[static_cast<size_t>(peer)].process);
}

Status Host::timedOut(int peer) const {
  const double limit = platform::tickSeconds(policy_.timeoutTicks);
  std::string missing;
  for (const Peer& other : peers_) {
    if (sequence_ != 0 && other.rank != rank_ && announced(other.header(), sequence_).sequence == 0) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(other.rank);
    }
  }
  const std::string who = missing.empty() ? "every rank has entered it" : "not entered by rank " + missing;
  return failAbout(
      peer, Code::kTimeout,
      "rank %d waited %.1f s for rank %d in %s (%s). Look at the missing rank with `stretto doctor`; "
      "STRETTO_TIMEOUT sets the limit.",
      rank_, limit, peer, current().c_str(), who.c_str());
}

}  // namespace stretto
