#include "platform/native_socket.hpp"

#include <algorithm>
#include <climits>
#include <iterator>

#include "platform/windows/native.hpp"

namespace stretto::native {
namespace {

using platform::windows::errnoOf;

constexpr size_t kMostPieces = 16;

// Neither blocks, nor is it inherited.
int adopt(SOCKET socket) {
  if (socket == INVALID_SOCKET) return checked(-1);
  u_long on = 1;
  SetHandleInformation(reinterpret_cast<HANDLE>(socket), HANDLE_FLAG_INHERIT, 0);
  if (checked(::ioctlsocket(socket, static_cast<long>(FIONBIO), &on)) == 0) return static_cast<int>(socket);
  ::closesocket(socket);
  return -1;
}

// As many of the pieces as go at once, in the system's form.
struct Buffers {
  WSABUF all[kMostPieces];
  DWORD count = 0;

  explicit Buffers(std::span<const IoSpan> pieces) {
    for (const IoSpan& piece : pieces.first(std::min(pieces.size(), kMostPieces))) {
      all[count].buf = static_cast<char*>(piece.data);
      all[count].len = static_cast<ULONG>(std::min<size_t>(piece.bytes, INT_MAX));
      ++count;
      if (piece.bytes > INT_MAX) break;  // what follows must not go before the rest of it
    }
  }
};

}  // namespace

int checked(int outcome) {
  if (outcome < 0) errno = errnoOf(static_cast<DWORD>(WSAGetLastError()));
  return outcome;
}

// Never ended: sockets may outlive static objects.
void startSockets() {
  static const int started = [] {
    WSADATA facts{};
    return WSAStartup(MAKEWORD(2, 2), &facts);
  }();
  static_cast<void>(started);
}

int openStream(int family) {
  startSockets();
  const int socket = adopt(::WSASocketW(family, SOCK_STREAM, IPPROTO_TCP, nullptr, 0, WSA_FLAG_OVERLAPPED));
  // Another process could bind to the same port otherwise.
  const int on = 1;
  if (socket >= 0) setOption(socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, on);
  return socket;
}

int acceptStream(int listener) {
  return adopt(::accept(handle(listener), nullptr, nullptr));
}

int64_t receive(int socket, std::span<const IoSpan> pieces) {
  Buffers buffers(pieces);
  DWORD bytes = 0;
  DWORD flags = 0;
  const int outcome = ::WSARecv(handle(socket), buffers.all, buffers.count, &bytes, &flags, nullptr, nullptr);
  return checked(outcome) == 0 ? int64_t{bytes} : -1;
}

int64_t send(int socket, std::span<const IoSpan> pieces) {
  Buffers buffers(pieces);
  DWORD bytes = 0;
  const int outcome = ::WSASend(handle(socket), buffers.all, buffers.count, &bytes, 0, nullptr, nullptr);
  return checked(outcome) == 0 ? int64_t{bytes} : -1;
}

int pendingError(int socket) {
  int error = 0;
  int length = sizeof error;
  const int outcome =
      ::getsockopt(handle(socket), SOL_SOCKET, SO_ERROR, reinterpret_cast<char*>(&error), &length);
  return checked(outcome) == 0 ? errnoOf(static_cast<DWORD>(error)) : errno;
}

}  // namespace stretto::native
