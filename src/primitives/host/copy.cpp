#include "primitives/host/copy.hpp"

#include <cstring>

#include "primitives/host/reduce_level.hpp"

namespace stretto {

// The C library's memcpy picks its own level and was as fast as any loop of ours in the caches.
void copyBytes(void* dst, const void* src, size_t bytes) {
  memcpy(dst, src, bytes);
}

void copyStream(void* dst, const void* src, size_t bytes) {
  currentCpuLevel().copyStream(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), bytes);
}

}  // namespace stretto
