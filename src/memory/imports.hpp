// Shared buffers of other processes, mapped here. One per communicator rank; used by one thread at a time.
// The last few mappings are kept, so that a buffer used again and again is mapped once; a peer that frees a
// buffer gets its pages back when the mapping falls out, at the latest with the communicator.
#pragma once

#include <cstdint>
#include <list>

#include "platform/shared_memory.hpp"
#include "primitives/peer.hpp"

namespace stretto::memory {

class Imports final : public Importer {
 public:
  Shareable describe(const void* address, size_t bytes) override;
  const std::byte* map(int peer, int process, const Shareable& what) override;

 private:
  static constexpr size_t kKept = 4 * kMaxRanks;  // more than one operation uses
  struct Mapping {
    int peer;
    uint64_t id;
    platform::SharedMemory memory;
  };
  std::list<Mapping> mappings_;  // the most recently used first
};

}  // namespace stretto::memory
