// What a rank on a GPU has called lately, for peers that look for the reason of a failure. Hosts run far
// ahead of GPUs, so it goes further back than the call records in a window's header do, in whose place it is
// used. It lies behind the window in the rank's shared region: the rank itself writes, its peers read at the
// same time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "primitives/disagreement.hpp"

namespace stretto::communicator {

class OperationLog {
 public:
  static constexpr size_t kEntries = 512;
  static constexpr size_t kBytes = kEntries * sizeof(CallRecord);

  // `at` is zeroed when the region is made.
  explicit OperationLog(std::byte* at) : entries_(reinterpret_cast<CallRecord*>(at)) {}

  void enter(const CallRecord& call) { recordCallAt(entry(call.sequence), call); }
  void enter(const CallRecord& kind, const CallInstance& call) {
    recordCallAt(entry(call.sequence), kind, call);
  }
  // Sequence 0 when there is none (any more).
  CallRecord find(uint64_t sequence) const { return recordedCallAt(entry(sequence), sequence); }
  // The latest with that tag.
  CallRecord findTag(uint64_t tag) const {
    for (uint64_t back = 0, last = this->last(); back < kEntries && back < last; ++back) {
      const CallRecord what = find(last - back);
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
  Difference firstDifferenceTo(const OperationLog& theirs) const {
    return firstDifference(
        last(), kEntries, [this](uint64_t at) { return find(at); },
        [&](uint64_t at) { return theirs.find(at); });
  }

 private:
  CallRecord& entry(uint64_t sequence) const { return entries_[sequence % kEntries]; }

  CallRecord* entries_;
};

}  // namespace stretto::communicator
