// Files in which the kernel shows something, under /proc and /sys. For Linux.
#pragma once

#include <string>

namespace stretto::platform {

// The first 4096 bytes; empty when they cannot be read. A process may end between the opening of its file and
// the reading, which fails then (ESRCH). That is no error here, and an exception where a standard stream's
// buffer is read.
std::string readSmallFile(const std::string& path);

}  // namespace stretto::platform
