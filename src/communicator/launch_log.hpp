// What a rank on a GPU has enqueued and has not yet seen to be done, oldest first. Plain values; the
// communicator holds a lock around every use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "primitives/announcement.hpp"

namespace stretto::communicator {

class LaunchLog {
 public:
  struct Entry {
    uint64_t place = 0;     // in the flight recorder
    uint64_t number = 0;    // done when so many kernels of collectives have ended
    uint64_t sequence = 0;  // of a collective; 0: transfers
    uint64_t ticks = 0;
    // The engine's numbers of its launches; of transfers also the peers, a bit each, and the first message.
    uint64_t firstLaunch = 0;
    uint64_t lastLaunch = 0;
    uint64_t sendsTo = 0;
    uint64_t receivesFrom = 0;
    Announcement message{};
  };

  void add(const Entry& entry) {
    if (entries_.empty()) entries_.resize(kEntries);
    if (begin_ + kEntries == end_) ++begin_;
    entries_[end_++ % kEntries] = entry;
  }
  const Entry* oldest() const { return begin_ == end_ ? nullptr : &entries_[begin_ % kEntries]; }
  const Entry* oldestCollective() const {
    return find([](const Entry& entry) { return entry.sequence != 0; });
  }
  // By the low 32 bits of a number.
  const Entry* ofLaunch(uint32_t launch) const {
    return find([&](const Entry& entry) {
      const uint32_t after = launch - static_cast<uint32_t>(entry.firstLaunch);
      return entry.firstLaunch <= entry.lastLaunch && after <= entry.lastLaunch - entry.firstLaunch;
    });
  }
  void drop() { ++begin_; }

 private:
  template <typename Is>
  const Entry* find(Is is) const {
    for (size_t i = begin_; i < end_; ++i) {
      if (is(entries_[i % kEntries])) return &entries_[i % kEntries];
    }
    return nullptr;
  }

  // CUDA lets a host run ahead of its device by 1024 launches.
  static constexpr size_t kEntries = 1024;
  std::vector<Entry> entries_;  // none before the first
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace stretto::communicator
