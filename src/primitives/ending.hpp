// How far a rank's end has come, as its peers read it in the header of its window.
#pragma once

#include <atomic>
#include <cstdint>

#include "primitives/window.hpp"

namespace stretto {

inline bool hasFailed(const WindowHeader& of) {
  return std::atomic_ref(const_cast<uint32_t&>(of.failed)).load(std::memory_order_acquire) != 0;
}
// It has finalised, and nothing of its work runs any more.
inline bool hasGone(const WindowHeader& of) {
  return std::atomic_ref(const_cast<uint32_t&>(of.left)).load(std::memory_order_acquire) ==
         WindowHeader::kGone;
}
// It has begun to finalise.
inline bool hasBegunToLeave(const WindowHeader& of) {
  return std::atomic_ref(const_cast<uint32_t&>(of.left)).load(std::memory_order_acquire) != 0;
}
// What it has not called by now it never will.
inline bool callsNothingMore(const WindowHeader& of) {
  return hasBegunToLeave(of) || hasFailed(of);
}

}  // namespace stretto
