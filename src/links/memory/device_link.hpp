// The link between GPUs of ranks that are threads of one process: an address, once the devices may reach one
// another.
#pragma once

#include "links/device_endpoint.hpp"
#include "links/memory/link.hpp"

namespace stretto::links::memory {

inline bool applies(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  return sameProcess(mine.process, theirs.process);
}

inline Result<DeviceLink> open(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  if (!platform::cuda::canReach(mine.device, theirs.device)) {
    return failAbout(theirs.rank, Code::kInvalidUsage,
                     "the driver lets no kernel reach from one to the other");
  }
  if (const Status status = platform::cuda::enableReach(mine.device, theirs.device); !status.ok())
    return status;
  DeviceLink link;
  link.kind = kName;
  link.shared = stretto::memory::DeviceRegion::find(theirs.token);
  if (link.shared == nullptr) {
    return failAbout(theirs.rank, Code::kRemote, "rank %d of this process has left already", theirs.rank);
  }
  link.window = link.shared->data();
  return link;
}

}  // namespace stretto::links::memory
