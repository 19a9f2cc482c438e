// Who knows of whose writes: vector clocks over the threads of all kernels, after the PTX memory model's
// happens-before. A load that is no atomic access and finds a word whose writer it has not synchronised with
// is a race, on whatever schedule it was found. Lines, which carry their own readiness, are atomic accesses
// and never race. (Vector clocks: L. Lamport 1978, F. Mattern 1989; as a race detector: C. Flanagan and
// S. Freund, FastTrack, 2009.)
//
// A vote or a shuffle orders nothing. Barriers and __syncwarp() do, between all who meet there; a release,
// or a fence before a relaxed store, with whoever reads that store and has a fence behind or acquires.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace stretto::emulator {

class Order {
 public:
  // The number of a thread: the same for the threads of a stream's every second kernel that have the same
  // place in them. Two kernels may run at the same time, if the later one may begin early.
  int numberOf(uint64_t stream, bool odd, unsigned block, unsigned thread);

  void plainStore(int thread, const void* at, size_t bytes);
  void plainLoad(int thread, const void* at, size_t bytes);
  void relaxedStore(int thread, const void* at);
  void relaxedLoad(int thread, const void* at);
  void releaseStore(int thread, const void* at);
  void acquireLoad(int thread, const void* at);
  // A word of a block's shared memory, for which a fence of either scope does; for others it must be the
  // system's.
  void sharedStore(int thread, const void* at);
  void sharedLoad(int thread, const void* at);
  enum class Scope : uint8_t { kBlock, kSystem };
  void fence(int thread, Scope scope);
  // All of them know what each of them knew.
  void meet(std::span<const int> threads);
  // What some know together, for others to hear of later.
  using Clock = std::vector<uint32_t>;  // by thread: how many of its stores are known
  using Heard = std::shared_ptr<const Clock>;
  Heard together(std::span<const int> threads) const;
  void hear(int thread, const Heard& heard);

  // The memory, whole pages of it, is another's now.
  void forget(const void* begin, size_t bytes);

  // What was found first; empty: nothing.
  const std::string& race() const { return race_; }

 private:
  static constexpr uintptr_t kGrain = 8;
  static constexpr uintptr_t kPage = 4096;
  // What a thread knew at some time: of others, which it shares with all who met where it met last, and its
  // own stores.
  struct Knowledge {
    Heard others;
    int thread;
    uint32_t own;
    bool operator==(const Knowledge&) const = default;
  };
  struct Thread {
    std::string name;
    Knowledge knows;
    // By the scope of a fence: what it knew at the last one, and what it has read of others since.
    std::optional<Knowledge> fenced[2];
    std::vector<Knowledge> pending[2];
    std::optional<Knowledge> acquired;  // last
  };
  struct Written {
    int by = -1;  // nobody
    uint32_t number = 0;
  };
  using WrittenPage = std::array<Written, kPage / kGrain>;
  // What all of them know together.
  Heard joined(std::span<const Knowledge* const> all) const;
  void learn(int thread, std::span<const Knowledge* const> from);
  void store(int thread, const void* at, Scope scope);
  void load(int thread, const void* at, Scope scope);
  Thread& of(int thread) { return threads_[static_cast<size_t>(thread)]; }
  const Thread& of(int thread) const { return threads_[static_cast<size_t>(thread)]; }
  Written& writtenAt(uintptr_t word);
  const Knowledge* toldAt(const void* at) const;

  std::unordered_map<uint64_t, int> numbers_;
  std::vector<Thread> threads_;
  // By page, so that memory is forgotten without a look at all other words.
  std::unordered_map<uintptr_t, std::unique_ptr<WrittenPage>> written_;
  std::unordered_map<uintptr_t, std::unordered_map<uintptr_t, Knowledge>> told_;
  // The page that was asked for last.
  struct {
    uintptr_t number = 0;
    WrittenPage* words = nullptr;
  } lastWritten_;
  // Of the thread that heard last: those of one block know, and hear, the same.
  struct {
    Heard before;
    Heard heard;
    Heard after;
  } hearing_;
  std::string race_;
};

}  // namespace stretto::emulator
