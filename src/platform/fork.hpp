// Telling a forked child from its parent, at the price of one load: threads, connections and windows that the
// child inherited are not its own.
#pragma once

#include <atomic>
#include <cstdint>

namespace stretto::platform {

namespace internal {
extern std::atomic<uint32_t> gForks;
}

// Changes in a child when it is forked; the same as long as a process lives.
inline uint32_t forkGeneration() {
  return internal::gForks.load(std::memory_order_relaxed);
}

}  // namespace stretto::platform
