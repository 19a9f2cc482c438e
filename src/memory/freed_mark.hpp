// The word by which processes that have mapped memory of ncclMemAlloc see that its owner has freed it. It
// lies in one more page behind what users see of a segment. For memory/ alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/shared_memory.hpp"

namespace stretto::memory {

inline constexpr size_t kMarkBytes = 4096;

inline uint64_t& markOf(const platform::SharedMemory& segment) {
  return *reinterpret_cast<uint64_t*>(segment.data() + segment.size() - kMarkBytes);
}
// The segment's id is the mark: nothing that a user writes beyond his memory looks like it.
inline void markFreed(const platform::SharedMemory& segment, uint64_t id) {
  std::atomic_ref(markOf(segment)).store(id, std::memory_order_release);
}
inline bool isMarkedFreed(const platform::SharedMemory& segment, uint64_t id) {
  return std::atomic_ref(markOf(segment)).load(std::memory_order_acquire) == id;
}

}  // namespace stretto::memory
