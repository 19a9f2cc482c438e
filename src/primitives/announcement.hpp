// How announcements are written and read while both may happen at once: the sequence is 0 while the rest
// changes, and every word is atomic. The owner writes with announce(), its peers read with announced().
#pragma once

#include <array>
#include <atomic>
#include <bit>

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

// The last words of an announcement are padding and are left out.
inline constexpr size_t kAnnouncementWords = (offsetof(Announcement, place) + sizeof(uint64_t)) / 8;

inline void announceAt(Announcement& place, const Announcement& what) {
  const auto words = std::bit_cast<AnnouncementWords>(what);
  wordOf(place, 0).store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 1; i < kAnnouncementWords; ++i) wordOf(place, i).store(words[i], std::memory_order_relaxed);
  wordOf(place, 0).store(what.sequence, std::memory_order_release);
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
