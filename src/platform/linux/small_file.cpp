#include "platform/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace stretto::platform {

std::string readSmallFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[4096];
  const ssize_t got = ::read(fd, text, sizeof text);
  ::close(fd);
  return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
}

}  // namespace stretto::platform
