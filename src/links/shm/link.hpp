// The link between processes of one host: the peer's window, mapped through its descriptor.
#pragma once

#include "links/endpoint.hpp"

namespace stretto::links::shm {

inline constexpr const char* kName = "shm";

inline bool applies(const Endpoint& mine, const Endpoint& theirs) {
  return sameHost(mine.process, theirs.process);
}

inline Result<Link> open(const Endpoint& theirs) {
  auto mapping = platform::SharedMemory::open(static_cast<os::ProcessId>(theirs.process.pid),
                                              theirs.descriptor, theirs.windowBytes);
  if (!mapping.ok()) return mapping.status();
  Link link;
  link.kind = kName;
  link.window = mapping.value().data();
  link.mapping = std::make_shared<const platform::SharedMemory>(std::move(mapping.value()));
  return link;
}

}  // namespace stretto::links::shm
