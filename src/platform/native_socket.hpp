// The operating system's sockets, and the few words in which the two systems differ. Only socket*.cpp and
// poller.cpp of platform/ include this.
#pragma once

#if defined(_WIN32)
#include <winsock2.h>
// After it:
#include <ws2tcpip.h>
#else
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#endif

#include <cerrno>
#include <cstdint>
#include <span>

#include "platform/socket.hpp"

namespace stretto::native {

#if defined(_WIN32)
// Handles of the kernel have 32 bits that count, so that a FileDescriptor's int holds one.
inline SOCKET handle(int descriptor) {
  return static_cast<SOCKET>(descriptor);
}
inline constexpr int kConnectGoesOn = EWOULDBLOCK;
inline constexpr int kSendingSide = SD_SEND;
// Puts what Winsock says of a call that failed into errno.
int checked(int outcome);
// Sockets of this process work from here on.
void startSockets();
#else
inline int handle(int descriptor) {
  return descriptor;
}
inline constexpr int kConnectGoesOn = EINPROGRESS;
inline constexpr int kSendingSide = SHUT_WR;
inline int checked(int outcome) {
  return outcome;
}
#endif

// A TCP socket, and one waiting connection: neither blocks, nor is it inherited. -1 with errno.
int openStream(int family);
int acceptStream(int listener);
// How many bytes went; -1 with errno.
int64_t receive(int socket, std::span<const IoSpan> pieces);
int64_t send(int socket, std::span<const IoSpan> pieces);

template <typename T>
int setOption(int socket, int level, int option, const T& value) {
  return checked(
      ::setsockopt(handle(socket), level, option, reinterpret_cast<const char*>(&value), sizeof value));
}
// SO_ERROR as an errno, or why it cannot be asked for.
int pendingError(int socket);

}  // namespace stretto::native
