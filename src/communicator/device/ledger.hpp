// What a rank on a GPU has called lately, for peers that look for the reason of a failure. Hosts run far
// ahead of GPUs, so it goes further back than the announcements in a window's header do, in whose place it is
// used. It lies behind the window in the rank's shared region: the rank itself writes, its peers read at the
// same time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "primitives/disagreement.hpp"

namespace stretto::communicator {

class Ledger {
 public:
  static constexpr size_t kEntries = 512;
  static constexpr size_t kBytes = kEntries * sizeof(Announcement);

  // `at` is zeroed when the region is made.
  explicit Ledger(std::byte* at) : entries_(reinterpret_cast<Announcement*>(at)) {}

  void enter(const Announcement& kind, const Announced& call) {
    announceAt(entry(call.sequence), kind, call);
  }
  // Sequence 0 when there is none (any more).
  Announcement find(uint64_t sequence) const { return announcedAt(entry(sequence), sequence); }
  // The latest with that tag.
  Announcement findTag(uint64_t tag) const {
    for (uint64_t back = 0, last = this->last(); back < kEntries && back < last; ++back) {
      const Announcement what = find(last - back);
      if (what.sequence != 0 && what.tag == tag) return what;
    }
    return {};
  }
  // The number of the last operation; 0 if none.
  uint64_t last() const {
    uint64_t last = 0;
    for (size_t i = 0; i < kEntries; ++i) {
      const uint64_t sequence = wordOf(entries_[i], 0).load(std::memory_order_acquire);
      if (sequence > last) last = sequence;
    }
    return last;
  }
  Difference firstDifferenceTo(const Ledger& theirs) const {
    return firstDifference(
        last(), kEntries, [this](uint64_t at) { return find(at); },
        [&](uint64_t at) { return theirs.find(at); });
  }

 private:
  Announcement& entry(uint64_t sequence) const { return entries_[sequence % kEntries]; }

  Announcement* entries_;
};

}  // namespace stretto::communicator
