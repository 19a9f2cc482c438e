// What Winsock tells of a TCP connection is less than Linux does: not what is queued, nor who does not
// answer.
#include "platform/socket_state.hpp"

#include <algorithm>

#include "platform/native_socket.hpp"
#include "platform/windows/native.hpp"

namespace stretto {

SocketState stateOf(const FileDescriptor&) {
  return {};
}

size_t bytesQueued(const FileDescriptor&) {
  return 0;
}

void breakWhenSilent(const FileDescriptor& socket, double seconds) {
  // It asks ten times.
  tcp_keepalive wanted{1, 1000, std::max<ULONG>(100, static_cast<ULONG>((seconds - 1) * 100))};
  DWORD got = 0;
  ::WSAIoctl(native::handle(socket.get()), SIO_KEEPALIVE_VALS, &wanted, sizeof wanted, nullptr, 0, &got,
             nullptr, nullptr);
}

void confirmLazily(const FileDescriptor&) {}

}  // namespace stretto
