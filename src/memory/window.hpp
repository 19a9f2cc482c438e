// A rank's own window: the shared memory that its peers map. Made when a communicator connects, gone with
// it; peers that still have it mapped keep the pages. Shared between the communicator that made it and the
// other ranks of the same process, who use it in place.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/window.hpp"

namespace stretto::memory {

class Window {
 public:
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  // `token` is a random number: a peer compares it after it has mapped the window.
  static Result<std::shared_ptr<Window>> create(int rank, const WindowLayout& layout, uint64_t token);

  // The window of this process that carries `token`; null if there is none (any more). Any thread.
  static std::shared_ptr<Window> find(uint64_t token);

  WindowHeader& header() const { return *reinterpret_cast<WindowHeader*>(memory_.data()); }
  std::byte* data() const { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }
  int descriptor() const { return memory_.descriptor(); }
  // Once every peer has mapped it the descriptor is of no more use.
  void closeDescriptor() { memory_.closeDescriptor(); }

 private:
  Window() = default;
  platform::SharedMemory memory_;
};

// kInternal, with the difference, unless `header` is the window of `rank` with this layout and token.
Status checkWindow(const WindowHeader& header, int rank, const WindowLayout& layout, uint64_t token);

}  // namespace stretto::memory
