// A word that threads sleep on and change, for the tests of futexes.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/futex.hpp"

namespace stretto::platform {

constexpr uint64_t kLong = 60'000'000;

inline uint32_t load(uint32_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
inline void change(uint32_t& word) {
  std::atomic_ref(word).fetch_add(1, std::memory_order_release);
  futexWake(&word);
}
// Until the word is `value` at least.
inline void sleepUntil(uint32_t& word, uint32_t value) {
  for (uint32_t now = load(word); now < value; now = load(word)) futexWait(&word, now, kLong);
}

}  // namespace stretto::platform
