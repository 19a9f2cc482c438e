// Sockets take any memory that the processor can read, and nothing has to be done for it. For net/tcp only.
#pragma once

#include <memory>

#include "net/net.hpp"

namespace stretto::net::tcp {

inline Result<std::unique_ptr<Registration>> enrolHostMemory(Memory kind) {
  if (kind == Memory::kHost) return std::make_unique<Registration>();
  return fail(Code::kInvalidUsage, "net/tcp sends from and receives into host memory only");
}

}  // namespace stretto::net::tcp
