// The link between ranks that are threads of one process: a pointer.
#pragma once

#include "links/endpoint.hpp"

namespace stretto::links::memory {

inline constexpr const char* kName = "memory";

inline bool applies(const Endpoint& mine, const Endpoint& theirs) {
  return sameProcess(mine.process, theirs.process);
}

inline Result<Link> open(const Endpoint& theirs) {
  Link link;
  link.kind = kName;
  link.window = reinterpret_cast<std::byte*>(theirs.windowAddress);
  return link;
}

}  // namespace stretto::links::memory
