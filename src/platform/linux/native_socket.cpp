#include "platform/native_socket.hpp"

#include <sys/uio.h>

#include <cstddef>

namespace stretto::native {
namespace {

static_assert(sizeof(IoSpan) == sizeof(iovec) && offsetof(IoSpan, data) == offsetof(iovec, iov_base) &&
                  offsetof(IoSpan, bytes) == offsetof(iovec, iov_len),
              "the kernel reads them as they are");

msghdr messageOf(std::span<const IoSpan> pieces) {
  msghdr message{};
  message.msg_iov = reinterpret_cast<iovec*>(const_cast<IoSpan*>(pieces.data()));
  message.msg_iovlen = pieces.size();
  return message;
}

}  // namespace

int openStream(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int acceptStream(int listener) {
  return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

// recvmsg has a header to copy from user memory, recv has none.
int64_t receive(int socket, std::span<const IoSpan> pieces) {
  if (pieces.size() == 1) return ::recv(socket, pieces.front().data, pieces.front().bytes, 0);
  msghdr message = messageOf(pieces);
  return ::recvmsg(socket, &message, 0);
}

int64_t send(int socket, std::span<const IoSpan> pieces) {
  const msghdr message = messageOf(pieces);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

int pendingError(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace stretto::native
