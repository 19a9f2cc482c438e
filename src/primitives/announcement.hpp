// How announcements are written and read while both may happen at once: the sequence is 0 while the rest
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

using AnnouncementWords = std::array<uint64_t, sizeof(Announcement) / sizeof(uint64_t)>;
static_assert(std::is_trivially_copyable_v<Announcement> && offsetof(Announcement, sequence) == 0);

inline std::atomic_ref<uint64_t> wordOf(const Announcement& place, size_t index) {
  return std::atomic_ref(reinterpret_cast<uint64_t*>(const_cast<Announcement*>(&place))[index]);
}

inline Announcement& placeOf(const WindowHeader& window, uint64_t sequence) {
  return const_cast<Announcement&>(window.announcements[sequence % WindowHeader::kAnnouncements]);
}

// All but what follows, which is padding. The last two words are written for the operation that has them.
inline constexpr size_t kAnnouncementWords = (offsetof(Announcement, mode) + sizeof(uint64_t)) / 8;

// What differs between two calls that are otherwise announced alike.
struct Announced {
  uint64_t sequence;
  uint64_t tag;
  uint64_t startedTicks;
  uint64_t place;
};

// Count, type and the like as `kind` has them. Word by word: the small operations' time.
inline void announceAt(Announcement& at, const Announcement& kind, const Announced& call) {
  constexpr size_t kTag = 1, kCount = 2, kStarted = 3, kFields = 4, kPlace = 5, kNorm = 6;
  static_assert(offsetof(Announcement, tag) == 8 * kTag && offsetof(Announcement, count) == 8 * kCount &&
                offsetof(Announcement, startedTicks) == 8 * kStarted &&
                offsetof(Announcement, collective) == 8 * kFields &&
                offsetof(Announcement, place) == 8 * kPlace && offsetof(Announcement, hidden) == 8 * kNorm &&
                kNorm + 2 == kAnnouncementWords);
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
inline void announceAt(Announcement& at, const Announcement& what) {
  announceAt(at, what, {what.sequence, what.tag, what.startedTicks, what.place});
}
inline void announce(WindowHeader& window, const Announcement& kind, const Announced& call) {
  announceAt(placeOf(window, call.sequence), kind, call);
}
inline void announce(WindowHeader& window, const Announcement& what) {
  announceAt(placeOf(window, what.sequence), what);
}

// A consistent copy of what stands there, if it is the announcement of `sequence`; else sequence 0 in the
// copy.
inline Announcement announcedAt(const Announcement& place, uint64_t sequence) {
  AnnouncementWords words{};
  if (wordOf(place, 0).load(std::memory_order_acquire) != sequence) return {};
  for (size_t i = 1; i < kAnnouncementWords; ++i) words[i] = wordOf(place, i).load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (wordOf(place, 0).load(std::memory_order_relaxed) != sequence) return {};
  words[0] = sequence;
  return std::bit_cast<Announcement>(words);
}
// A rank's announcement for `sequence`; sequence 0 when it has none (any more).
inline Announcement announced(const WindowHeader& window, uint64_t sequence) {
  return announcedAt(placeOf(window, sequence), sequence);
}

// The number of the last operation that a rank has entered.
inline uint64_t lastAnnounced(const WindowHeader& window) {
  uint64_t last = 0;
  for (const Announcement& place : window.announcements) {
    const uint64_t sequence = wordOf(place, 0).load(std::memory_order_acquire);
    if (sequence > last) last = sequence;
  }
  return last;
}

}  // namespace stretto
