// The link between GPUs of ranks that are threads of one process: an address, once the devices may reach one
// another. Mapped memory is mapped again: its owner's mapping is for devices of the owner's choice, and stays
// as it is.
#pragma once

#include "links/device_endpoint.hpp"
#include "links/memory/link.hpp"

namespace stretto::links::memory {

inline bool applies(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  return sameProcess(mine.process, theirs.process);
}

inline Result<DeviceLink> open(const DeviceEndpoint& mine, const DeviceEndpoint& theirs, double) {
  if (!platform::cuda::canAccess(mine.device, theirs.device)) {
    return failAbout(theirs.rank, Code::kInvalidUsage,
                     "the driver lets no kernel reach from one to the other");
  }
  if (const Status status = platform::cuda::enablePeerAccess(mine.device, theirs.device); !status.ok())
    return status;
  DeviceLink link;
  link.kind = kName;
  link.shared = stretto::memory::DeviceRegion::find(theirs.token);
  if (link.shared == nullptr) {
    return failAbout(theirs.rank, Code::kRemote, "rank %d of this process has left already", theirs.rank);
  }
  link.window = link.shared->data();
  if (theirs.mapped == 0 || mine.token == theirs.token) return link;
  const auto pieces = platform::cuda::Pieces::behind(theirs.device, link.window, theirs.windowBytes);
  if (!pieces.ok()) return pieces.status();
  auto imported = stretto::memory::DeviceImport::map(mine.device, pieces.value(), pieces.value().offset(),
                                                     theirs.windowBytes);
  if (!imported.ok()) return imported.status();
  link.window = imported.value().data();
  link.import = std::move(imported.value());
  return link;
}

}  // namespace stretto::links::memory
