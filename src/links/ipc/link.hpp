// The link between GPUs of different processes of one host: the peer's window, opened by the name that CUDA
// gave it.
#pragma once

#include "links/device_endpoint.hpp"

namespace stretto::links::ipc {

inline constexpr const char* kName = "ipc";

inline bool applies(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  return sameHost(mine.process, theirs.process) && !sameProcess(mine.process, theirs.process);
}

// A device that this process cannot see may still be reached: opening is the test.
inline Result<DeviceLink> open(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  const int visible = platform::cuda::ordinalOf(theirs.facts.uuid);
  if (visible >= 0 && !platform::cuda::canReach(mine.device, visible)) {
    return failAbout(theirs.rank, Code::kInvalidUsage,
                     "the driver lets no kernel reach from one to the other");
  }
  if (theirs.named == 0) {
    return failAbout(theirs.rank, Code::kInvalidUsage,
                     "rank %d could not name its memory for other processes", theirs.rank);
  }
  auto import = stretto::memory::DeviceImport::open(mine.device, theirs.name);
  if (!import.ok()) return import.status();
  DeviceLink link;
  link.kind = kName;
  link.window = import.value().data();
  link.import = std::move(import.value());
  return link;
}

}  // namespace stretto::links::ipc
