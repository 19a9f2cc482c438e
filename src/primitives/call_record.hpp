// How call records are written and read while both may happen at once: the sequence is 0 while the rest
// changes, and every word is atomic. The owner writes with announce(), its peers read with announced().
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "primitives/window.hpp"

namespace stretto {

// How long a rank that sees a peer to have given up waits for its own word of the reason, which may be a
// third one.
inline constexpr double kSecondHandSeconds = 0.5;

using CallRecordWords = std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)>;
static_assert(std::is_trivially_copyable_v<CallRecord> && offsetof(CallRecord, sequence) == 0);

inline std::atomic_ref<uint64_t> wordOf(const CallRecord& place, size_t index) {
  return std::atomic_ref(reinterpret_cast<uint64_t*>(const_cast<CallRecord*>(&place))[index]);
}

inline CallRecord& placeOf(const WindowHeader& window, uint64_t sequence) {
  return const_cast<CallRecord&>(window.calls[sequence % WindowHeader::kCallsKept]);
}

// All but what follows, which is padding. The last two words are written for the operation that has them.
inline constexpr size_t kCallRecordWords = (offsetof(CallRecord, mode) + sizeof(uint64_t)) / 8;

// What differs between two calls that are otherwise announced alike.
struct CallInstance {
  uint64_t sequence;
  uint64_t tag;
  uint64_t startedTicks;
  uint64_t place;
};

// Count, type and the like as `kind` has them. Word by word: the small operations' time.
inline void recordCallAt(CallRecord& at, const CallRecord& kind, const CallInstance& call) {
  constexpr size_t kTag = 1, kCount = 2, kStarted = 3, kFields = 4, kPlace = 5, kNorm = 6;
  static_assert(offsetof(CallRecord, tag) == 8 * kTag && offsetof(CallRecord, count) == 8 * kCount &&
                offsetof(CallRecord, startedTicks) == 8 * kStarted &&
                offsetof(CallRecord, collective) == 8 * kFields &&
                offsetof(CallRecord, place) == 8 * kPlace && offsetof(CallRecord, hidden) == 8 * kNorm &&
                kNorm + 2 == kCallRecordWords);
  const auto put = [&](size_t word, uint64_t value) {
    wordOf(at, word).store(value, std::memory_order_relaxed);
  };
  uint64_t fields;
  std::memcpy(&fields, &kind.collective, sizeof fields);
  put(0, 0);
  std::atomic_thread_fence(std::memory_order_release);
  put(kTag, call.tag);
  put(kCount, kind.count);
  put(kStarted, call.startedTicks);
  put(kFields, fields);
  put(kPlace, call.place);
  if (kind.collective == static_cast<uint8_t>(Collective::kAllReduceAddRmsNorm)) {
    put(kNorm, kind.hidden | static_cast<uint64_t>(std::bit_cast<uint32_t>(kind.epsilon)) << 32);
    put(kNorm + 1, std::bit_cast<uint32_t>(kind.mode));
  }
  wordOf(at, 0).store(call.sequence, std::memory_order_release);
}
inline void recordCallAt(CallRecord& at, const CallRecord& what) {
  recordCallAt(at, what, {what.sequence, what.tag, what.startedTicks, what.place});
}
inline void recordCall(WindowHeader& window, const CallRecord& kind, const CallInstance& call) {
  recordCallAt(placeOf(window, call.sequence), kind, call);
}
inline void recordCall(WindowHeader& window, const CallRecord& what) {
  recordCallAt(placeOf(window, what.sequence), what);
}

// A consistent copy of what stands there, if it is the call record of `sequence`; else sequence 0 in the
// copy.
inline CallRecord recordedCallAt(const CallRecord& place, uint64_t sequence) {
  CallRecordWords words{};
  if (wordOf(place, 0).load(std::memory_order_acquire) != sequence) return {};
  for (size_t i = 1; i < kCallRecordWords; ++i) words[i] = wordOf(place, i).load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (wordOf(place, 0).load(std::memory_order_relaxed) != sequence) return {};
  words[0] = sequence;
  return std::bit_cast<CallRecord>(words);
}
// A rank's call record for `sequence`; sequence 0 when it has none (any more).
inline CallRecord recordedCall(const WindowHeader& window, uint64_t sequence) {
  return recordedCallAt(placeOf(window, sequence), sequence);
}

// The number of the last operation that a rank has entered.
inline uint64_t lastRecordedCall(const WindowHeader& window) {
  uint64_t last = 0;
  for (const CallRecord& place : window.calls) {
    const uint64_t sequence = wordOf(place, 0).load(std::memory_order_acquire);
    if (sequence > last) last = sequence;
  }
  return last;
}

}  // namespace stretto
