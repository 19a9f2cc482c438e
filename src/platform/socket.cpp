#include "platform/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

namespace stretto {
namespace {

// Which descriptors a forked child must close. A plain bitmap under a mutex that fork() also takes, so that
// the child's copy is always consistent; never freed, because descriptors may outlive static objects.
struct ForkTable {
  std::mutex mutex;
  std::vector<bool> open;
};

void lockForFork();
void unlockInParent();
void closeInChild();

ForkTable& forkTable() {
  static ForkTable* const table = [] {
    auto* made = new ForkTable;
    made->open.resize(1024);
    return made;
  }();
  static const int registered = pthread_atfork(lockForFork, unlockInParent, closeInChild);
  static_cast<void>(registered);
  return *table;
}

void lockForFork() {
  forkTable().mutex.lock();
}

void unlockInParent() {
  forkTable().mutex.unlock();
}

// Runs in the child before fork() returns there; close() is all it may call.
void closeInChild() {
  ForkTable& table = forkTable();
  for (size_t fd = 0; fd < table.open.size(); ++fd) {
    if (table.open[fd]) {
      ::close(static_cast<int>(fd));
      table.open[fd] = false;
    }
  }
  table.mutex.unlock();
}

struct NativeAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

NativeAddress toNative(const SocketAddress& address) {
  NativeAddress native;
  if (address.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.bytes, sizeof in.sin_addr);
    std::memcpy(&native.storage, &in, sizeof in);
    native.length = sizeof in;
  } else if (address.family == 6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(address.port);
    std::memcpy(&in.sin6_addr, address.bytes, sizeof in.sin6_addr);
    std::memcpy(&native.storage, &in, sizeof in);
    native.length = sizeof in;
  }
  return native;
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
  return FileDescriptor::create(
      [family] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

// Small messages that somebody waits for: never hold them back to fill a segment.
void sendAtOnce(const FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

msghdr messageOf(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return message;
}

// What a system call that moves bytes says, tried again as long as signals interrupt it.
template <typename Call>
Transfer moved(Call&& call) {
  ssize_t bytes = 0;
  do {
    bytes = call();
  } while (bytes < 0 && errno == EINTR);
  if (bytes >= 0) return {IoOutcome::kSome, static_cast<size_t>(bytes), 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoOutcome::kWouldBlock, 0, 0};
  return {IoOutcome::kFailed, 0, errno};
}

template <typename Call>
Transfer received(Call&& call) {
  const Transfer got = moved(call);
  return got.outcome == IoOutcome::kSome && got.bytes == 0 ? Transfer{IoOutcome::kClosed, 0, 0} : got;
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

FileDescriptor FileDescriptor::create(const std::function<int()>& open) {
  ForkTable& table = forkTable();
  FileDescriptor made;
  std::lock_guard lock(table.mutex);
  const int fd = open();
  if (fd < 0) {
    return made;
  }
  const auto index = static_cast<size_t>(fd);
  if (index >= table.open.size()) {
    table.open.resize(std::max(index + 1, table.open.size() * 2));
  }
  table.open[index] = true;
  made.fd_ = fd;
  made.generation_ = platform::forkGeneration();
  return made;
}

void FileDescriptor::reset() {
  if (fd_ < 0) {
    return;
  }
  ForkTable& table = forkTable();
  const int error = errno;
  std::lock_guard lock(table.mutex);
  if (const int fd = get(); fd >= 0) {
    ::close(fd);
    table.open[static_cast<size_t>(fd)] = false;
  }
  fd_ = -1;
  errno = error;
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
    return "[" + std::string(text) + "]:" + std::to_string(address.port);
  }
  return "no address";
}

Result<FileDescriptor> listenOn(const SocketAddress& address) {
  FileDescriptor socket = openSocket(address);
  const NativeAddress native = toNative(address);
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&native.storage), native.length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return failErrno("cannot listen on %s", toText(address).c_str());
  }
  return socket;
}

Result<SocketAddress> boundAddress(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return failErrno("cannot tell the address of a socket");
  }
  return fromNative(storage);
}

FileDescriptor acceptFrom(const FileDescriptor& listener) {
  FileDescriptor socket = FileDescriptor::create(
      [&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
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
  if (own.length != 0 &&
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own.storage), own.length) != 0) {
    socket.reset();  // keeps errno
    return socket;
  }
  const NativeAddress native = toNative(address);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&native.storage), native.length) != 0 &&
      errno != EINPROGRESS && errno != EINTR) {
    socket.reset();  // keeps errno
  }
  return socket;
}

int connectError(const FileDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
    return errno;
  }
  return error;
}

SocketAddress peerAddress(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  const bool known = ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) == 0;
  return known ? fromNative(storage) : SocketAddress{};
}

bool isConnected(const FileDescriptor& socket) {
  return peerAddress(socket).family != 0;
}

Transfer receiveSome(const FileDescriptor& socket, std::span<uint8_t> into) {
  return received([&] { return ::recv(socket.get(), into.data(), into.size(), 0); });
}

Transfer receiveSome(const FileDescriptor& socket, std::span<const iovec> pieces) {
  msghdr message = messageOf(pieces);
  return received([&] { return ::recvmsg(socket.get(), &message, 0); });
}

Transfer sendSome(const FileDescriptor& socket, std::span<const iovec> pieces) {
  msghdr message = messageOf(pieces);
  return moved([&] { return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL); });
}

void endSending(const FileDescriptor& socket) {
  ::shutdown(socket.get(), SHUT_WR);
}

void resetOnClose(const FileDescriptor& socket) {
  const linger atOnce{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &atOnce, sizeof atOnce);
}

Result<Poller> Poller::create() {
  Poller poller;
  poller.epoll_ = FileDescriptor::create([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  poller.wakeup_ = FileDescriptor::create([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!poller.epoll_.valid() || !poller.wakeup_.valid()) {
    return failErrno("cannot create an epoll and an event descriptor");
  }
  STRETTO_TRY(poller.add(poller.wakeup_, kWakeTag, false));
  return poller;
}

Status Poller::add(const FileDescriptor& socket, uint64_t tag, bool wantWritable) {
  epoll_event event{};
  event.events = EPOLLIN | (wantWritable ? EPOLLOUT : 0u);
  event.data.u64 = tag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return failErrno("cannot watch a socket");
  }
  return kOkStatus;
}

void Poller::setWantWritable(const FileDescriptor& socket, uint64_t tag, bool want) {
  epoll_event event{};
  event.events = EPOLLIN | (want ? EPOLLOUT : 0u);
  event.data.u64 = tag;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

void Poller::setPaused(const FileDescriptor& socket, uint64_t tag, bool paused) {
  epoll_event event{};
  event.events = paused ? 0u : static_cast<uint32_t>(EPOLLIN);
  event.data.u64 = tag;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

void Poller::remove(const FileDescriptor& socket) {
  epoll_event event{};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), &event);
}

size_t Poller::wait(std::span<Event> events, int milliseconds) {
  constexpr size_t kBatch = 64;
  epoll_event raw[kBatch];
  const int limit = static_cast<int>(std::min(events.size(), kBatch));
  const int count = ::epoll_wait(epoll_.get(), raw, limit, milliseconds);
  size_t kept = 0;
  for (int i = 0; i < count; ++i) {
    if (raw[i].data.u64 == kWakeTag) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &ignored, sizeof ignored);
      continue;
    }
    const uint32_t bits = raw[i].events;
    const bool broken = (bits & (EPOLLERR | EPOLLHUP)) != 0;
    events[kept++] = {raw[i].data.u64, broken || (bits & EPOLLIN) != 0, broken || (bits & EPOLLOUT) != 0};
  }
  return kept;
}

void Poller::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t sent = ::write(wakeup_.get(), &one, sizeof one);
}

}  // namespace stretto
