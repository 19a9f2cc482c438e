// ByteStream sockets as the control plane needs them: non-blocking, close-on-exec, and never inherited by a
// forked child (a child that kept a copy of a socket would hide its parent's death from the peers). Any
// folder may include this. Nothing here logs or sets the last error unless it returns a Status or Result:
// the caller knows whether a refused connection matters. Every function may be called from any thread; one
// descriptor or Poller is used by one thread at a time, except Poller::wake. errno is of the C library's own
// numbers on Windows too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.hpp"
#include "platform/fork.hpp"

namespace stretto {

// Owns one file descriptor (on Windows, one socket). After fork() the child's copies are closed before fork()
// returns there, and the child's FileDescriptor objects know it: they hold none any more, and touch no number
// that has been given out again.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  // Owns what `open` returns (a descriptor, or -1 with errno). No fork falls between its birth and the
  // moment that a child would know it; `open` must not block.
  static FileDescriptor create(const std::function<int()>& open);

  bool valid() const { return get() >= 0; }
  // -1 if there is none.
  int get() const { return generation_ == platform::forkGeneration() ? fd_ : -1; }
  void reset();

 private:
  int fd_ = -1;
  uint32_t generation_ = 0;  // the process that it was born in
};

// An address as it travels between ranks: plain bytes in network order.
struct SocketAddress {
  uint16_t family = 0;  // 4 or 6; 0 means no address
  uint16_t port = 0;    // in host order
  uint8_t bytes[16] = {};

  bool operator==(const SocketAddress&) const = default;
};
SocketAddress loopbackAddress(uint16_t port = 0);
// "127.0.0.1:4711", "[::1]:4711" or "no address".
std::string toText(const SocketAddress& address);

// Listens; port 0 lets the system choose, and boundAddress tells what it chose.
Result<FileDescriptor> listenOn(const SocketAddress& address);
Result<SocketAddress> boundAddress(const FileDescriptor& socket);
// One waiting connection; not valid (errno tells why, EAGAIN when there is none) otherwise.
FileDescriptor acceptFrom(const FileDescriptor& listener);
// Starts to connect. Not valid (errno) when that is refused on the spot; otherwise connectError tells the
// outcome once the socket is writable: 0 or an errno.
FileDescriptor beginConnect(const SocketAddress& address);
// The same from one of this host's own addresses (its port does not count), so that the bytes leave by the
// interface that has it; anywhere if `from` is no address.
FileDescriptor beginConnect(const SocketAddress& address, const SocketAddress& from);
int connectError(const FileDescriptor& socket);
// Whether it is connected, which beginConnect may leave to come; and to whom (no address if it is not).
bool isConnected(const FileDescriptor& socket);
SocketAddress peerAddress(const FileDescriptor& socket);

// Bytes to be sent, or room for some that come.
struct IoSpan {
  void* data = nullptr;
  size_t bytes = 0;
};

enum class IoOutcome : uint8_t { kSome, kWouldBlock, kClosed, kFailed };
struct Transfer {
  IoOutcome outcome = IoOutcome::kFailed;
  size_t bytes = 0;  // with kSome
  int error = 0;     // errno, with kFailed
};
Transfer receiveSome(const FileDescriptor& socket, std::span<uint8_t> into);
Transfer receiveSome(const FileDescriptor& socket, std::span<const IoSpan> pieces);
Transfer sendSome(const FileDescriptor& socket, std::span<const IoSpan> pieces);
// Tells the other end that no more will come; receiving goes on.
void endSending(const FileDescriptor& socket);
// Makes the close that follows throw away what is unsent, so that the port is free again at once.
void resetOnClose(const FileDescriptor& socket);

// Waits on many sockets at once, level-triggered, and can be woken from another thread.
class Poller {
 public:
  struct Event {
    uint64_t tag = 0;
    bool readable = false;  // also when the other end closed: receiving tells which
    bool writable = false;
  };

  // What a socket is watched for. Errors and hang-ups are reported in any case.
  enum class For : uint8_t { kNothing, kReading, kWriting, kBoth };

  static Result<Poller> create();
  // Tags are the caller's; kWakeTag is not for use.
  Status add(const FileDescriptor& socket, uint64_t tag, For what);
  // Of one that was added.
  void change(const FileDescriptor& socket, uint64_t tag, For what);
  // To be called before the socket is closed.
  void remove(const FileDescriptor& socket);
  // Fills `events` and returns how many; at most `milliseconds` (negative: until something happens).
  size_t wait(std::span<Event> events, int milliseconds);
  // Makes a wait, now or next, return. Any thread.
  void wake();

 private:
  static constexpr uint64_t kWakeTag = ~uint64_t{0};
  struct State;  // of the operating system's own kind
  struct Delete {
    void operator()(State* state) const;
  };

  std::unique_ptr<State, Delete> state_;
};

}  // namespace stretto
