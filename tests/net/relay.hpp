// A relay between a sender and a receiver of net/tcp.
#pragma once

#include <gtest/gtest.h>

#include "harness/relay.hpp"
#include "net/drive.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/wire.hpp"

namespace stretto::net::testing {

inline tcp::Rendezvous decoded(const Handle& handle) {
  tcp::Rendezvous where;
  EXPECT_TRUE(tcp::decode(handle, where));
  return where;
}

class Relay : public stretto::testing::Relay {
 public:
  // Of a listener whose handle this is.
  explicit Relay(const Handle& handle)
      : stretto::testing::Relay(decoded(handle).addresses.front()), where_(decoded(handle)) {
    where_.addresses = {address()};
  }

  // Leads here, and on to the listener.
  Handle handle() const { return tcp::encode(where_); }

 private:
  tcp::Rendezvous where_;
};

// A connection whose flows all go through a relay.
struct Relayed {
  explicit Relayed(const tcp::Settings& settings) : net(tcp::open(settings)) {
    auto listener = net->listen(0);
    EXPECT_TRUE(listener.ok());
    relay = std::make_unique<Relay>(listener.value()->handle());
    pair = join(*net, std::move(listener.value()), relay->handle());
  }
  std::unique_ptr<Net> net;
  std::unique_ptr<Relay> relay;
  Pair pair;
};

}  // namespace stretto::net::testing
