// One TCP connection of the several that carry a connection of net/tcp: what sender and receiver do alike
// with it. For net/tcp only; used by the thread that uses the connection.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "net/net.hpp"
#include "net/tcp/wire.hpp"
#include "platform/socket.hpp"

namespace stretto::net::tcp {

// One that has proved to be of the peer.
struct Joined {
  FileDescriptor socket;
  std::string route;
};

struct Flow {
  Flow(Joined&& joined, double silence);
  // With what the kernel counts.
  FlowCounters count() const;
  // Whether what was sent over it has had no answer for too long. Cheap to ask often.
  bool isSilent(double silence, uint64_t now);
  void close();

  FileDescriptor socket;
  FlowCounters counters;
  bool open = true;

 private:
  uint64_t asked_ = 0;  // when isSilent() asked the kernel last
};

// "its connection closed" or "it broke (Connection reset by peer)".
std::string whyEnded(const Transfer& transfer);

// Closes a socket so that what was sent over it arrives, even if the peer sends still: a plain close() would
// have the kernel reset the connection then. Waits for the peer's kernel at most `milliseconds`; what is not
// confirmed by then stays open, and later calls of this function and of closeIdle() close it.
void closeGently(FileDescriptor socket, int milliseconds);
void closeIdle();

}  // namespace stretto::net::tcp
