// The nets that tests/net drives: net/tcp over loopback in several set-ups.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/tcp/tcp.hpp"

namespace stretto::net::testing {

inline NetworkInterface loopback(uint8_t last) {
  NetworkInterface interface;
  interface.name = "lo" + std::to_string(last);
  interface.address = SocketAddress{4, 0, {127, 0, 0, last}};
  interface.prefixBits = 8;
  interface.connected = true;
  return interface;
}

inline NetworkInterface loopback6() {
  NetworkInterface interface = loopback(1);
  interface.address = SocketAddress{6, 0, {}};
  interface.address.bytes[15] = 1;
  interface.prefixBits = 128;
  return interface;
}

inline tcp::Settings oneFlow() {
  tcp::Settings settings;
  settings.interfaces = {loopback(1)};
  return settings;
}

// Small chunks and messages, so that little traffic crosses every bound.
inline tcp::Settings manyFlows(int flows) {
  tcp::Settings settings = oneFlow();
  settings.flows = flows;
  settings.chunk = settings.mostChunk = 16 << 10;
  settings.small = 4 << 10;
  settings.copied = 2 << 10;
  settings.leastWindow = 64 << 10;
  return settings;
}

// Helpers move the chunks, and share flows: fewer threads than flows.
inline tcp::Settings withHelpers(int flows) {
  tcp::Settings settings = manyFlows(flows);
  settings.threads = 2;
  settings.chunk = 8 << 10;
  return settings;
}

inline tcp::Settings encrypted(tcp::Settings settings) {
  settings.encryption.on = true;
  return settings;
}

inline tcp::Settings twoInterfaces() {
  tcp::Settings settings = manyFlows(1);
  settings.interfaces = {loopback(1), loopback(2)};
  return settings;
}

}  // namespace stretto::net::testing
