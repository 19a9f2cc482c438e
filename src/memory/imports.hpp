// Shared buffers of other processes, mapped here. One per communicator rank. A mapping is kept, so that a
// buffer used again and again is mapped once, until its owner has freed it, until too many bytes are mapped,
// or until the communicator goes.
//
// Threads: map() and endOperation() belong to the thread that runs the operation, sweep() to any. An
// operation holds all mappings from its first map() to its end; a sweep that comes meanwhile is done at that
// end, so nothing is unmapped that an operation reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>

#include "base/shareable.hpp"
#include "base/status.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::memory {

class Imports {
 public:
  // What is kept mapped beside what the running operation uses. The bytes bound what peers hold of memory
  // that its owner could not tell them of; more than one operation uses: two buffers of each of 64 ranks.
  static constexpr size_t kMostBytes = size_t{4} << 30;
  static constexpr size_t kMostMappings = 256;

  Imports() = default;
  ~Imports() { clear(); }
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // `what`, a buffer of rank `peer` in `process`, in our address space. Valid until endOperation(), however
  // many others are mapped. kRemote when the process has ended, kSystem when the system refuses, kInternal
  // when the description makes no sense; the last error says which.
  Result<const std::byte*> map(int peer, int process, const Shareable& what);
  // To be called at the end of every operation; costs one load when it has mapped nothing.
  void endOperation() {
    if (holding_) letGo();
  }
  // Unmaps what its owners have freed: now, or at the end of the operation that runs.
  void sweep();
  // Unmaps everything. Nothing runs.
  void clear();

  size_t mappedBytes() const { return bytes_; }

 private:
  struct Mapping {
    int peer;
    uint64_t id;
    uint64_t usedBy;  // the last operation
    platform::SharedMemory memory;
  };
  using Mappings = std::list<Mapping>;

  void beginOperation();
  void letGo();
  Mappings takeFreed();
  Mappings takeOldest(size_t more);
  void sweepAsAsked();

  std::atomic<bool> asked_{false};  // for a sweep that nobody has done yet
  std::mutex mutex_;                // of what follows
  uint64_t operation_ = 0;
  size_t bytes_ = 0;
  Mappings mappings_;  // the most recently used first
  // The operation's thread has the mutex. Last, beside what follows in the communicator: every operation
  // looks at it, and that is at hand anyway.
  bool holding_ = false;
};

}  // namespace stretto::memory
