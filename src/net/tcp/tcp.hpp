// Bytes between hosts over TCP: an implementation of Net with our own sockets. One connection has one or
// several flows, each a TCP connection, over one or several network interfaces. Everything moves inside
// calls: there is no thread. net/ and those above it may use this.
#pragma once

#include <memory>

#include "net/net.hpp"
#include "net/tcp/settings.hpp"

namespace stretto::net::tcp {

std::unique_ptr<Net> open(const Settings& settings);
// As the environment has it, but for the encryption.
Result<std::unique_ptr<Net>> open(const Encryption& encryption);

}  // namespace stretto::net::tcp
