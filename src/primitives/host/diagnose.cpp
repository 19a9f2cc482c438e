// Why a wait does not end, in words: what this rank runs, what its peers say they run.
#include <cinttypes>
#include <string>

#include "primitives/host/host.hpp"

namespace stretto {
namespace {

// A consistent copy of a rank's announcement for `sequence`; sequence 0 in the copy when it has none (any
// more).
Announcement announced(const WindowHeader& window, uint64_t sequence) {
  const auto& place = window.announcements[sequence % WindowHeader::kAnnouncements];
  const auto& word = const_cast<uint64_t&>(place.sequence);
  Announcement copy{};
  if (std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire) != sequence) return copy;
  std::memcpy(&copy, &place, sizeof copy);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_relaxed) != sequence)
    copy.sequence = 0;
  return copy;
}

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

Status Host::mismatch(int peer) const {
  const Announcement mine = announced(header(), sequence_);
  const Announcement theirs = announced(peers_[static_cast<size_t>(peer)].header(), sequence_);
  return failAbout(
      peer, Code::kInvalidUsage,
      "ranks disagree: rank %d called %s, rank %d called %s. All ranks of a communicator must call the "
      "same operations with the same count, type, operator and root, in the same order.",
      rank_, inWords(mine).c_str(), peer, inWords(theirs).c_str());
}

Status Host::disagreement() const {
  for (const Peer& other : peers_) {
    const auto code =
        static_cast<Code>(std::atomic_ref(other.header().failed).load(std::memory_order_acquire));
    if (code != Code::kOk && other.rank != rank_) {
      return failAbout(other.rank, Code::kRemote,
                       "rank %d: rank %d has given up on this communicator (%s); its own error says why",
                       rank_, other.rank, nameOf(code));
    }
    if (sequence_ == 0) continue;  // a point-to-point transfer: others need not take part
    const Announcement theirs = announced(other.header(), sequence_);
    if (theirs.sequence != 0 && theirs.tag != tag_) return mismatch(other.rank);
  }
  return kOkStatus;
}

Status Host::givenUp() const {
  const uint32_t word = std::atomic_ref(header().abort).load(std::memory_order_acquire);
  const auto code = static_cast<Code>(word & 0xff);
  return Status{code, static_cast<int16_t>(static_cast<int>(word >> 8) - 1)};
}

Status Host::timedOut(int peer) const {
  const double limit = platform::tickSeconds(policy_.timeoutTicks);
  std::string missing;
  for (const Peer& other : peers_) {
    if (sequence_ != 0 && other.rank != rank_ && announced(other.header(), sequence_).sequence == 0) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(other.rank);
    }
  }
  const std::string mine =
      sequence_ == 0 ? "a point-to-point transfer" : inWords(announced(header(), sequence_));
  const std::string who = missing.empty() ? "every rank has entered it" : "not entered by rank " + missing;
  return failAbout(
      peer, Code::kTimeout,
      "rank %d waited %.1f s for rank %d in %s (%s). Look at the missing rank with `stretto doctor`; "
      "STRETTO_TIMEOUT sets the limit.",
      rank_, limit, peer, mine.c_str(), who.c_str());
}

}  // namespace stretto
