// The time, and what this process holds of the kernel now: entries of /proc/self/task and /proc/self/fd,
// lines of /proc/self/maps; what is the same on Windows. For tests of every folder, those below the library's
// API too.
#pragma once

#include <chrono>
#include <cstddef>

namespace stretto::testing {

inline double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

size_t threadsNow();
size_t descriptorsNow();
size_t mappingsNow();

}  // namespace stretto::testing
