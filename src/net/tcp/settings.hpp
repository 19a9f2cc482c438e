// How net/tcp works in this process: which network interfaces, how many flows over each, and the sizes that
// decide what goes how. Part of tcp.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.hpp"
#include "platform/encryption.hpp"
#include "platform/network_interface.hpp"

namespace stretto::net::tcp {

struct Settings {
  std::vector<NetworkInterface> interfaces;  // at least one
  bool merge = true;                         // one device of all interfaces, not one of each
  int flows = 1;                             // per interface
  int threads = 0;                           // helpers of this process that move bytes; 0: none
  size_t chunk = 512 << 10;                  // bytes that go over one flow at a time, at least
  size_t mostChunk = 512 << 10;              // and at most: a message is split evenly over the flows
  size_t small = 64 << 10;         // bytes of a message that may go at once, without waiting for its receive
  size_t copied = 16 << 10;        // of several flows: bytes of one that always does, and is copied
  size_t leastWindow = 512 << 10;  // bytes under way over a flow, if there are several
  size_t mostWindow = 16 << 20;
  double attempts = 10;  // seconds during which a connection that fails is tried again
  Encryption encryption;
  double silence = 4;  // seconds after which a flow whose peer does not answer is given up
};

// From the environment, but for the encryption. kInvalidUsage if it chooses no interface or a value is wrong.
Result<Settings> settingsOfEnvironment(const Encryption& encryption);

}  // namespace stretto::net::tcp
