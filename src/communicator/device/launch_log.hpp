// What a rank on a GPU has enqueued and has not yet seen to be done, oldest first, and how many messages that
// makes. Plain values; the communicator holds a lock around every use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "communicator/device/kernel_waits.hpp"
#include "executors/cuda/engine.hpp"
#include "primitives/disagreement.hpp"

namespace stretto::communicator {

class LaunchLog {
 public:
  struct Entry {
    uint64_t place = 0;  // in the flight recorder
    // Done when so many kernels of either kind have ended: its own or, where its own are not counted, one
    // that comes after it. Replays of graphs count, too, so what has a count of its own goes by that alone.
    executors::cuda::KernelCounts ends;
    static constexpr uint64_t kNotByThese = UINT64_MAX;
    uint64_t sequence = 0;  // of a collective; 0: transfers
    uint64_t ticks = 0;
    // The engine's numbers of its launches.
    uint64_t firstLaunch = 0;
    uint64_t lastLaunch = 0;
    // Of transfers: one for each message, and the first of them for the words of an error.
    struct Message {
      int16_t peer;
      bool isSend;
    };
    std::vector<Message> messages;
    CallRecord first{};

    bool isDone(const executors::cuda::KernelCounts& ended) const {
      return ended.collectives >= ends.collectives || ended.oneSided >= ends.oneSided;
    }
  };

  void add(Entry entry) {
    if (entries_.empty()) entries_.resize(kEntries);
    if (begin_ + kEntries == end_) ++begin_;
    for (const Entry::Message& message : entry.messages) ++counterOf(messages_, message);
    entries_[end_++ % kEntries] = std::move(entry);
  }
  // Messages were enqueued of which nobody knows how often they run: totals are not known any more.
  void loseCount() { isCounted_ = false; }

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

  // What an entry of the log means to peers that wait for this rank.
  WaitingLaunch describe(const Entry& entry) const {
    WaitingLaunch what;
    what.isTransfers = entry.sequence == 0;
    what.isOfSignals = isWaitForSignals(entry.first);
    what.isCounted = isCounted_;
    what.with = messages_;
    for (size_t i = end_; i-- > begin_ && &entries_[i % kEntries] != &entry;) {
      for (const Entry::Message& message : entries_[i % kEntries].messages) --counterOf(what.with, message);
    }
    what.before = what.with;
    for (const Entry::Message& message : entry.messages) --counterOf(what.before, message);
    return what;
  }

 private:
  static uint64_t& counterOf(MessageCounts& counts, const Entry::Message& message) {
    return (message.isSend ? counts.sent : counts.received)[static_cast<size_t>(message.peer)];
  }
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
  MessageCounts messages_;
  bool isCounted_ = true;
};

}  // namespace stretto::communicator
