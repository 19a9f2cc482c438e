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
  link.shared = stretto::memory::Region::find(theirs.token);
  if (link.shared == nullptr) {
    return failAbout(theirs.rank, Code::kRemote, "rank %d of this process has left already", theirs.rank);
  }
  link.window = link.shared->data();
  return link;
}

}  // namespace stretto::links::memory
