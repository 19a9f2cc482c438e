// Random bytes from the operating system, good enough for secrets. Any folder may include this.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace stretto {

// Fills `bytes` from getrandom(2). Fails (kSystem) only where the kernel has none to give. Any thread.
Status fillRandom(std::span<uint8_t> bytes);

}  // namespace stretto
