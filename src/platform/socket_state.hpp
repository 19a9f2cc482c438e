// What the kernel knows of a TCP connection: how fast it is, what it had to send again, whether the other end
// still answers. Any folder may include this; one descriptor is asked by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/socket.hpp"

namespace stretto {

struct SocketState {
  double roundTripSeconds = 0;  // least of what was measured lately; 0 if nothing was
  double bytesPerSecond = 0;    // that were delivered lately; 0 if nothing was
  uint64_t sentAgain = 0;       // segments, since the connection was made
  uint32_t unanswered = 0;      // segments and probes in a row that the other end's kernel did not answer
  double silentSeconds = 0;     // since the last answer
};
// All zero for a socket that is none of TCP.
SocketState stateOf(const FileDescriptor& socket);

// Bytes that were given to the kernel and that the other end's kernel has not confirmed.
size_t bytesQueued(const FileDescriptor& socket);

// Lets the kernel ask an idle connection whether the other end is there, and break it off if there was no
// answer for about this long (2 seconds at least). A process that is stopped answers: its kernel does.
void breakWhenSilent(const FileDescriptor& socket, double seconds);

// Lets the kernel hold back its confirmation of what has come until there is more of it: for small messages
// on a connection that carries them one way, where each would cost a segment of its own otherwise. The kernel
// forgets it when the connection has been idle for a while.
void confirmLazily(const FileDescriptor& socket);

}  // namespace stretto
