// Copies in host memory. For the Host backend and its executor.
#pragma once

#include <cstddef>

namespace stretto {

// memcpy: any alignment, no overlap. The right one while the destination fits the caches.
void copyBytes(void* dst, const void* src, size_t bytes);

// The same result, written around the caches: for a large destination that will not be read soon. Any
// alignment, no overlap. When it returns, its stores are ordered like ordinary ones (it fences). Where the
// CPU has no such stores (aarch64), this is an ordinary copy.
void copyStream(void* dst, const void* src, size_t bytes);

}  // namespace stretto
