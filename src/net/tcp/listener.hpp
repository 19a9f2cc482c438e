// Waits for peers that hold its handle, and for the connections that are being made. For net/tcp only.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "net/net.hpp"
#include "net/tcp/handshake.hpp"
#include "net/tcp/settings.hpp"

namespace stretto::net::tcp {

// Anybody can connect to its sockets. Who does has some seconds to prove that it holds the handle, and only
// so many may be at it at a time: the others wait in the kernel's queue.
class TcpListener final : public Listener {
 public:
  static Result<std::unique_ptr<Listener>> create(const Settings& settings,
                                                  std::vector<NetworkInterface> interfaces);
  const Handle& handle() const override { return handle_; }
  Status accept(std::unique_ptr<Receiver>& connection) override;

 private:
  // A connection of which not all flows are there.
  struct Partial {
    Hello hello;
    uint64_t since = 0;
    std::vector<Joined> flows;  // by number; not valid until it is there
    size_t there = 0;
  };

  struct Door {
    FileDescriptor socket;
    NetworkInterface interface;
  };
  struct Stranger {
    Answerer answerer;
    SocketAddress from;
    std::string interface;
  };

  explicit TcpListener(const Settings& settings) : settings_(settings) {}
  Status listen(std::vector<NetworkInterface> interfaces);
  Status admit();
  Status hear();
  void join(Stranger& stranger);
  void dropLate();
  void sayDropped(const std::string& who, const std::string& why);

  const Settings settings_;
  Rendezvous where_;
  Handle handle_{};
  std::vector<Door> doors_;
  std::list<Stranger> strangers_;
  std::list<Partial> partial_;
  bool saidDropped_ = false;
};

// A connection that is being made: all its flows at once.
class TcpConnecting final : public Connecting {
 public:
  TcpConnecting(const Settings& settings, const std::vector<NetworkInterface>& interfaces,
                const Rendezvous& where);
  Status begin();
  Status poll(std::unique_ptr<Sender>& connection) override;

 private:
  void call(size_t flow);
  void turnFromSilent(size_t flow);
  Status onFailure(size_t flow, const FailedCall& failed);

  const Settings settings_;
  const std::vector<NetworkInterface> interfaces_;
  const Rendezvous where_;
  Hello hello_;
  std::vector<std::unique_ptr<Caller>> callers_;  // null: joined, or waits for its next attempt
  std::vector<Joined> flows_;
  std::vector<uint64_t> nextAttempt_;
  std::vector<size_t> failures_;
  std::vector<double> patience_;  // seconds that an address has to answer
  size_t impostors_ = 0;          // answers of those who did not know the key
  size_t joined_ = 0;
  std::vector<uint64_t> failingSince_;  // 0: no attempt has failed
};

}  // namespace stretto::net::tcp
