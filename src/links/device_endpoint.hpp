// What a rank on a GPU tells the others so that their kernels can reach its window, and what a link to that
// window is. The same shape as links/endpoint.hpp: `applies(mine, theirs)` says whether a kind of link can
// serve this pair, `open(mine, theirs, seconds)` makes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/status.hpp"
#include "memory/device_region.hpp"
#include "platform/cuda/device.hpp"
#include "platform/descriptors.hpp"
#include "platform/identity.hpp"

namespace stretto::links {

// Travels between ranks as bytes; nothing in it is trusted before it is checked.
struct DeviceEndpoint {
  ProcessIdentity process;
  int32_t rank = -1;
  int32_t device = -1;  // as its process numbers them
  platform::cuda::DeviceFacts facts;
  uint64_t windowBytes = 0;
  uint64_t token = 0;
  platform::cuda::IpcName name;
  uint8_t named = 0;   // `name` means something
  uint8_t mapped = 0;  // the window lies in mapped memory (platform/cuda/mapped.hpp), which has no name
  uint8_t reserved[6] = {};
  uint64_t offset = 0;                 // of a mapped window, in its first piece
  platform::DescriptorAddress pieces;  // where other processes get them
};
static_assert(std::is_trivially_copyable_v<DeviceEndpoint>);

inline bool sameDevice(const platform::cuda::DeviceFacts& a, const platform::cuda::DeviceFacts& b) {
  return std::equal(a.uuid, a.uuid + sizeof a.uuid, b.uuid);
}

// One peer's window as this rank's device addresses it, and what keeps it there.
struct DeviceLink {
  const char* kind = "";
  std::byte* window = nullptr;
  memory::DeviceImport import;
  std::shared_ptr<memory::DeviceRegion> shared;
};

}  // namespace stretto::links
