// There is no fork that a socket could survive in.
#include "platform/native_socket.hpp"

namespace stretto {

FileDescriptor FileDescriptor::create(const std::function<int()>& open) {
  FileDescriptor made;
  made.fd_ = open();
  made.generation_ = platform::forkGeneration();
  return made;
}

void FileDescriptor::reset() {
  if (fd_ < 0) return;
  const int error = errno;
  ::closesocket(native::handle(fd_));
  fd_ = -1;
  errno = error;
}

}  // namespace stretto
