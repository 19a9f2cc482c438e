// The link between GPUs of different processes of one host: the peer's window, opened by the name that CUDA
// gave it, or put together from its pieces, for which the peer's process hands out descriptors.
#pragma once

#include "links/device_endpoint.hpp"

namespace stretto::links::ipc {

inline constexpr const char* kName = "ipc";

inline bool applies(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  return sameHost(mine.process, theirs.process) && !sameProcess(mine.process, theirs.process);
}

inline Result<stretto::memory::DeviceImport> importFrom(const DeviceEndpoint& mine,
                                                        const DeviceEndpoint& theirs, double seconds) {
  if (theirs.named != 0) return stretto::memory::DeviceImport::open(mine.device, theirs.name);
  if (theirs.mapped == 0) {
    return failAbout(theirs.rank, Code::kInvalidUsage,
                     "rank %d could not name its memory for other processes", theirs.rank);
  }
  platform::cuda::Pieces pieces;
  const auto take = [&](size_t, size_t, platform::NumberedDescriptor one) {
    return pieces.append(mine.device, one.descriptor, one.number);
  };
  STRETTO_TRY(platform::takeDescriptors(theirs.pieces, seconds, take));
  return stretto::memory::DeviceImport::map(mine.device, pieces, theirs.offset, theirs.windowBytes);
}

// A device that this process cannot see may still be reached: opening is the test.
inline Result<DeviceLink> open(const DeviceEndpoint& mine, const DeviceEndpoint& theirs, double seconds) {
  const int visible = platform::cuda::ordinalOf(theirs.facts.uuid);
  if (visible >= 0 && !platform::cuda::canAccess(mine.device, visible)) {
    return failAbout(theirs.rank, Code::kInvalidUsage,
                     "the driver lets no kernel reach from one to the other");
  }
  auto imported = importFrom(mine, theirs, seconds);
  if (!imported.ok()) return imported.status();
  DeviceLink link;
  link.kind = kName;
  link.window = imported.value().data();
  link.import = std::move(imported.value());
  return link;
}

}  // namespace stretto::links::ipc
