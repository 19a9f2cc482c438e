// A rank's own window: the shared memory that its peers map. Made when a communicator connects, gone with
// it; peers that still have it mapped keep the pages. Owned by the communicator.
#pragma once

#include "base/status.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/window.hpp"

namespace stretto::memory {

class Window {
 public:
  Window() = default;
  // `token` is a random number that a peer compares after it has mapped the window.
  static Result<Window> create(int rank, const WindowLayout& layout, uint64_t token);

  WindowHeader& header() const { return *reinterpret_cast<WindowHeader*>(memory_.data()); }
  std::byte* data() const { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }
  int descriptor() const { return memory_.descriptor(); }
  // Once every peer has mapped it the descriptor is of no more use.
  void closeDescriptor() { memory_.closeDescriptor(); }

 private:
  platform::SharedMemory memory_;
};

// kInternal, with the difference, unless `header` is the window of `rank` with this layout and token.
Status checkWindow(const WindowHeader& header, int rank, const WindowLayout& layout, uint64_t token);

}  // namespace stretto::memory
