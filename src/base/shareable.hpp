// How a rank tells others about a buffer, so that they can read it where it is. A plain value that travels.
#pragma once

#include <cstdint>

namespace stretto {

// `id` is 0 for ordinary memory; memory of ncclMemAlloc is a shared segment of its own (`descriptor` in its
// process, `base`, `bytes`), which peers may map: all of it, with what lies behind what users see.
struct Shareable {
  uint64_t address = 0;
  uint64_t id = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;
  int64_t descriptor = -1;
};

}  // namespace stretto
