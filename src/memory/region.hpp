// A region: shared memory of one rank that others of this host use, by mapping it or, as threads of the same
// process, in place. Shared between the communicator that made it and those threads' communicators; processes
// that have it mapped keep the pages when it goes.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::memory {

class Region {
 public:
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  // Zeroed. `token` is a random number by which find() knows it; `label` shows in /proc/PID/fd.
  static Result<std::shared_ptr<Region>> create(const char* label, size_t bytes, uint64_t token);
  // The region of this process that carries `token`; null if there is none (any more). Any thread.
  static std::shared_ptr<Region> find(uint64_t token);

  std::byte* data() const { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }
  uint64_t token() const { return token_; }
  int descriptor() const { return memory_.descriptor(); }
  // Once everybody has mapped it the descriptor is of no more use.
  void closeDescriptor() { memory_.closeDescriptor(); }

 private:
  Region(platform::SharedMemory memory, uint64_t token) : memory_(std::move(memory)), token_(token) {}

  platform::SharedMemory memory_;
  uint64_t token_;
};

}  // namespace stretto::memory
