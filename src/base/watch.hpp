// Whether anybody watches what this process does: a profiler plugin
// (observe/profiler_host); or buffers must be looked at, because CUDA is in the process and ranks are in host
// memory (communicator/core/host_memory.hpp). One word for all who may, so that an operation that nobody
// watches pays one look at a word that stays in its cache; who it is that watches is asked behind that look,
// out of its way. Any folder may include this; a watcher says for itself when it comes and goes.
#pragma once

#include <atomic>
#include <cstdint>

namespace stretto::watch {

enum Watcher : uint8_t { kProfilerPlugin = 1, kDeviceMemory = 2 };

namespace internal {
inline std::atomic<uint8_t> gWatchers{0};
}

inline bool anybody() {
  return internal::gWatchers.load(std::memory_order_relaxed) != 0;
}
inline bool watches(Watcher who) {
  return (internal::gWatchers.load(std::memory_order_relaxed) & who) != 0;
}
inline void set(Watcher who, bool present) {
  if (present) {
    internal::gWatchers.fetch_or(who, std::memory_order_relaxed);
  } else {
    internal::gWatchers.fetch_and(static_cast<uint8_t>(~who), std::memory_order_relaxed);
  }
}

}  // namespace stretto::watch
