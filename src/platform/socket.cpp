// What both systems' sockets have in common; native_socket.hpp says where they differ.
#include "platform/socket.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/native_socket.hpp"

namespace stretto {
namespace {

struct NativeAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

NativeAddress toNative(const SocketAddress& address) {
  NativeAddress made;
  if (address.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.bytes, sizeof in.sin_addr);
    std::memcpy(&made.storage, &in, sizeof in);
    made.length = sizeof in;
  } else if (address.family == 6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(address.port);
    std::memcpy(&in.sin6_addr, address.bytes, sizeof in.sin6_addr);
    std::memcpy(&made.storage, &in, sizeof in);
    made.length = sizeof in;
  }
  return made;
}

const sockaddr* asSockaddr(const NativeAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

SocketAddress fromNative(const sockaddr_storage& storage) {
  SocketAddress address;
  if (storage.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &storage, sizeof in);
    address.family = 4;
    address.port = ntohs(in.sin_port);
    std::memcpy(address.bytes, &in.sin_addr, sizeof in.sin_addr);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &storage, sizeof in);
    address.family = 6;
    address.port = ntohs(in.sin6_port);
    std::memcpy(address.bytes, &in.sin6_addr, sizeof in.sin6_addr);
  }
  return address;
}

FileDescriptor openSocket(const SocketAddress& address) {
  if (address.family != 4 && address.family != 6) {
    errno = EAFNOSUPPORT;
    return {};
  }
  const int family = address.family == 4 ? AF_INET : AF_INET6;
  return FileDescriptor::create([family] { return native::openStream(family); });
}

int bindTo(const FileDescriptor& socket, const NativeAddress& own) {
  return native::checked(::bind(native::handle(socket.get()), asSockaddr(own), own.length));
}

// Small messages that somebody waits for: never hold them back to fill a segment.
void sendAtOnce(const FileDescriptor& socket) {
  const int on = 1;
  native::setOption(socket.get(), IPPROTO_TCP, TCP_NODELAY, on);
}

// What a system call that moves bytes says, tried again as long as signals interrupt it.
template <typename Call>
Transfer moved(Call&& call) {
  int64_t bytes = 0;
  do {
    bytes = call();
  } while (bytes < 0 && errno == EINTR);
  if (bytes >= 0) return {IoOutcome::kSome, static_cast<size_t>(bytes), 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoOutcome::kWouldBlock, 0, 0};
  return {IoOutcome::kFailed, 0, errno};
}

}  // namespace

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

SocketAddress loopbackAddress(uint16_t port) {
  return SocketAddress{4, port, {127, 0, 0, 1}};
}

std::string toText(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family == 4) {
    ::inet_ntop(AF_INET, address.bytes, text, sizeof text);
    return std::string(text) + ":" + std::to_string(address.port);
  }
  if (address.family == 6) {
    ::inet_ntop(AF_INET6, address.bytes, text, sizeof text);
    return std::string("[") + text + "]:" + std::to_string(address.port);
  }
  return "no address";
}

Result<FileDescriptor> listenOn(const SocketAddress& address) {
  FileDescriptor socket = openSocket(address);
  if (!socket.valid() || bindTo(socket, toNative(address)) != 0 ||
      native::checked(::listen(native::handle(socket.get()), SOMAXCONN)) != 0) {
    return failErrno("cannot listen on %s", toText(address).c_str());
  }
  return socket;
}

Result<SocketAddress> boundAddress(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (native::checked(
          ::getsockname(native::handle(socket.get()), reinterpret_cast<sockaddr*>(&storage), &length)) != 0) {
    return failErrno("cannot tell the address of a socket");
  }
  return fromNative(storage);
}

FileDescriptor acceptFrom(const FileDescriptor& listener) {
  FileDescriptor socket = FileDescriptor::create([&] { return native::acceptStream(listener.get()); });
  if (socket.valid()) {
    sendAtOnce(socket);
  }
  return socket;
}

FileDescriptor beginConnect(const SocketAddress& address) {
  return beginConnect(address, SocketAddress{});
}

FileDescriptor beginConnect(const SocketAddress& address, const SocketAddress& from) {
  FileDescriptor socket = openSocket(address);
  if (!socket.valid()) {
    return socket;
  }
  sendAtOnce(socket);
  SocketAddress anyPort = from;
  anyPort.port = 0;
  const NativeAddress own = toNative(anyPort);
  if (own.length != 0 && bindTo(socket, own) != 0) {
    socket.reset();  // keeps errno
    return socket;
  }
  const NativeAddress to = toNative(address);
  if (native::checked(::connect(native::handle(socket.get()), asSockaddr(to), to.length)) != 0 &&
      errno != native::kConnectGoesOn && errno != EINTR) {
    socket.reset();  // keeps errno
  }
  return socket;
}

int connectError(const FileDescriptor& socket) {
  return native::pendingError(socket.get());
}

SocketAddress peerAddress(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  const bool known =
      ::getpeername(native::handle(socket.get()), reinterpret_cast<sockaddr*>(&storage), &length) == 0;
  return known ? fromNative(storage) : SocketAddress{};
}

bool isConnected(const FileDescriptor& socket) {
  return peerAddress(socket).family != 0;
}

Transfer receiveSome(const FileDescriptor& socket, std::span<uint8_t> into) {
  const IoSpan piece{into.data(), into.size()};
  return receiveSome(socket, std::span(&piece, 1));
}

Transfer receiveSome(const FileDescriptor& socket, std::span<const IoSpan> pieces) {
  const Transfer got = moved([&] { return native::receive(socket.get(), pieces); });
  return got.outcome == IoOutcome::kSome && got.bytes == 0 ? Transfer{IoOutcome::kClosed, 0, 0} : got;
}

Transfer sendSome(const FileDescriptor& socket, std::span<const IoSpan> pieces) {
  return moved([&] { return native::send(socket.get(), pieces); });
}

void endSending(const FileDescriptor& socket) {
  ::shutdown(native::handle(socket.get()), native::kSendingSide);
}

void resetOnClose(const FileDescriptor& socket) {
  const linger atOnce{1, 0};
  native::setOption(socket.get(), SOL_SOCKET, SO_LINGER, atOnce);
}

}  // namespace stretto
