#include "platform/random.hpp"

#include <sys/random.h>

#include <cerrno>

namespace stretto {

Status fillRandom(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failErrno("the kernel gives no random bytes");
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return kOkStatus;
}

}  // namespace stretto
