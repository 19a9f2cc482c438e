// Shared buffers of other processes, mapped here. One per communicator rank; used by one thread at a time.
// The last few mappings are kept, so that a buffer used again and again is mapped once; a peer that frees a
// buffer gets its pages back when the mapping falls out, at the latest with the communicator.
#pragma once

#include <cstdint>
#include <list>

#include "base/shareable.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::memory {

class Imports {
 public:
  // `what`, a buffer of rank `peer` in `process`, in our address space; null with the error said.
  const std::byte* map(int peer, int process, const Shareable& what);

 private:
  static constexpr size_t kKept = 256;  // more than one operation uses: two buffers of each of 64 ranks
  struct Mapping {
    int peer;
    uint64_t id;
    platform::SharedMemory memory;
  };
  std::list<Mapping> mappings_;  // the most recently used first
};

}  // namespace stretto::memory
