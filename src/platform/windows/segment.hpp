// How a segment of shared memory begins on Windows: with what its sleepers need, and then what its owner
// asked for. A word's segment is found by the word's address (the view that it is in), so that futex.cpp
// needs no table of segments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stretto::platform::windows {

// A thread that sleeps on a word, and the event that wakes it (named by process and thread, futex.cpp).
struct Sleeper {
  std::atomic<uint64_t> who{0};  // process << 32 | thread; 0: this place is free
  std::atomic<uint64_t> offset{0};
};

struct SegmentHeader {
  static constexpr uint64_t kMagic = 0x7374726574746f31;  // "stretto1"
  static constexpr size_t kBytes = 4096;                  // before the owner's bytes
  static constexpr int kSleepers = 240;

  uint64_t magic = 0;
  uint64_t bytes = 0;  // of the owner's
  Sleeper sleepers[kSleepers];
};
static_assert(sizeof(SegmentHeader) <= SegmentHeader::kBytes);

}  // namespace stretto::platform::windows
