// A rank's device window: made when some rank of the communicator first needs one, told to the others in the
// rank's post, which lies behind the operation log in the rank's shared region: the rank itself writes, its
// peers read (docs/decisions/0021-windows-at-first-use.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "links/device_endpoint.hpp"
#include "memory/device_region.hpp"
#include "memory/region.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::communicator {

struct WindowOffer {
  enum State : uint32_t { kNothing = 0, kOffered, kRefused };
  alignas(64) uint32_t state;  // written last, with release
  uint64_t opened;             // a bit for each rank whose window this one has opened
  uint8_t code;                // refused: why
  char text[400];              // refused: in words
  links::DeviceEndpoint endpoint;

  State read() const;  // with acquire
};

class OwnWindow {
 public:
  // `self`: of this rank, but for its memory. `told` is the region in which the post lies, at `place`.
  OwnWindow(links::DeviceEndpoint self, const stretto::cuda::Shape& shape,
            std::shared_ptr<memory::Region> reported, size_t place);

  // Makes the window and posts it, or why it cannot be had; later calls get the same answer. Any thread, also
  // while others capture.
  Status offer();
  // Bytes of device memory; 0 until it is made.
  size_t bytes() const;

 private:
  Status make();
  WindowOffer& windowOffer() const;

  mutable std::mutex mutex_;  // held while the window is made
  links::DeviceEndpoint self_;
  const stretto::cuda::Shape shape_;
  const std::shared_ptr<memory::Region> shared_;
  const size_t place_;
  std::shared_ptr<memory::DeviceRegion> region_;
};

// Ranks of other processes need a name for device memory, and not every machine can give one: an endpoint
// without is no error.
void nameMemory(const memory::DeviceRegion& region, links::DeviceEndpoint& endpoint);

}  // namespace stretto::communicator
