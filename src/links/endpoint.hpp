// What a rank tells the others so that they can reach it, and what a link to it is. Every kind of link has
// the same shape: `applies(mine, theirs)` says whether it can serve this pair, `open(...)` makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/status.hpp"
#include "memory/region.hpp"
#include "platform/identity.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/window.hpp"

namespace stretto::links {

// Travels between ranks as bytes; nothing in it is trusted before it is checked.
struct Endpoint {
  ProcessIdentity process;
  int32_t rank = -1;
  int32_t descriptor = -1;     // of the window, in its process
  int32_t onDevice = 0;        // 1: a GPU
  int32_t proxied = 0;         // 1: a GPU whose bytes for other hosts go over our own net
  uint64_t windowAddress = 0;  // in its process
  uint64_t windowBytes = 0;
  uint64_t token = 0;
};
static_assert(std::is_trivially_copyable_v<Endpoint>);

// One peer's window in our address space, and what keeps it there: a mapping, a share in the window of
// another rank of this process, or, in place of a window, a header. A copy keeps it as well.
struct Link {
  const char* kind = "";
  std::byte* window = nullptr;
  std::shared_ptr<const platform::SharedMemory> mapping;
  std::shared_ptr<memory::Region> shared;
  std::shared_ptr<WindowHeader> standIn;  // of a rank on another host: what it was last heard to say
};

}  // namespace stretto::links
