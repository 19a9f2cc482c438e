// Bytes between hosts: NCCL's net plugin table (version 12) as a C++ interface. net/tcp implements it with
// our own sockets, net/plugin adapts a table that somebody else's library exports. Those who move bytes
// (links/net, the plugin that we give to NCCL) know this interface only.
//
// The contract is the one that NCCL keeps with its plugins (docs of ncclNet_v12_t in NCCL's nccl_net.h):
//
// * Nothing here waits. What cannot be done yet returns kOk and leaves its result empty (a null connection, a
//   null request, `done` false); the caller asks again, and it is the caller's wait that has a deadline.
// * A connection carries messages one way, from the side that connected to the side that accepted. The n-th
//   message of a tag that was sent goes to the n-th receive of that tag; with one tag, the n-th to the n-th.
// * A connection is made by both sides: connect's poll() and accept() must both be called until they give it.
// * The bytes of a request belong to the net from send() or receive() until test() has said done, or until
//   the connection is destroyed; an error does not give them back. Requests of one connection are tested
//   oldest first; at most kMostRequests of them are under way. Without calls a connection stands still sooner
//   or later; threads of the net's own may move bytes between calls.
// * Threads: one thread at a time calls for one connection. Different connections may be used by different
//   threads, and Net itself by any.
// * Errors: kRemote when the peer has gone or broke the protocol, kSystem when the operating system refused,
//   kInvalidUsage when a message was longer than the bytes that were there for it. After an error a
//   connection can only be closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace stretto::net {

inline constexpr int kMostRequests = 32;  // under way on one connection: NCCL_NET_MAX_REQUESTS
inline constexpr int kMostGrouped = 8;    // receives in one request
inline constexpr size_t kHandleBytes = 128;

// What a listener gives to who is to connect to it; sent from rank to rank as bytes, and not trusted.
using Handle = std::array<std::byte, kHandleBytes>;

enum class Memory : uint8_t { kHost, kDevice };

struct Properties {
  std::string name;           // "eth0"
  std::string pciPath;        // in /sys, empty if it has none
  uint64_t guid = 0;          // the same for ports of one card
  bool takesDevice = false;   // memory of GPUs can be sent and received
  int64_t bitsPerSecond = 0;  // of the link; 0 if nobody knows
  int port = 0;
  double microseconds = 0;  // latency, 0 if nobody knows
  int mostConnections = 0;
  int mostGrouped = 1;   // receives that one request can hold
  size_t mostBytes = 0;  // of one message
  bool gathers = false;  // senders have sendGathered()
  // Who receives is told that the sender has closed, behind all that it sent.
  bool tellsEnd = false;
};

// Memory that messages come from and go to. Ends when it is destroyed; no request that uses it may be under
// way.
class Registration {
 public:
  virtual ~Registration() = default;
};

// One message or a group of them, under way. Owned by its connection, whose implementation derives from it.
class Request {
 protected:
  Request() = default;
  ~Request() = default;
};

// A message that lies in two places: a head, and the rest.
struct Gathered {
  std::span<const std::byte> head;
  std::span<const std::byte> rest;

  size_t bytes() const { return head.size() + rest.size(); }
};

// One of the receives of a group.
struct Receive {
  std::byte* to = nullptr;
  size_t bytes = 0;  // room; the message may be shorter
  int tag = 0;
  Registration* memory = nullptr;
};

// What one flow of a connection (a TCP connection, a queue pair) has done since it was made.
struct FlowCounters {
  std::string route;       // "eth0 10.0.0.1:40112 to 10.0.0.2:4711"
  uint64_t bytes = 0;      // of messages, that left or came by it
  uint64_t parts = 0;      // messages, or chunks of messages, that these were
  uint64_t stalls = 0;     // how often it could take no more while there was more to send
  uint64_t sentAgain = 0;  // segments that the network lost
  double roundTripSeconds = 0;
  bool lost = false;  // it broke, and the others carry what it carried
};

// The end that sends. Destroying it closes the connection; bytes that are still under way may be lost.
class Sender {
 public:
  virtual ~Sender() = default;
  virtual Result<std::unique_ptr<Registration>> enrol(std::byte* at, size_t bytes, Memory kind) = 0;
  // `request` stays null while no more can be under way.
  virtual Status send(const std::byte* from, size_t bytes, int tag, Registration* memory,
                      Request*& request) = 0;
  // The same of a message that lies in two places, of which neither need be enrolled; only where
  // Properties::gathers says so.
  virtual Status sendGathered(const Gathered& /*message*/, int /*tag*/, Request*& /*request*/) {
    return fail(Code::kInternal, "this net takes messages from one place only");
  }
  virtual Status test(Request* request, bool& done) = 0;
  // Empty where nobody counts.
  virtual std::vector<FlowCounters> flows() const { return {}; }
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual Result<std::unique_ptr<Registration>> enrol(std::byte* at, size_t bytes, Memory kind) = 0;
  // At most Properties::mostGrouped of them, which are done together.
  virtual Status receive(const Receive* receives, int count, Request*& request) = 0;
  // `sizes` (may be null) has room for `count` of the request and gets the bytes of each message.
  virtual Status test(Request* request, bool& done, size_t* sizes) = 0;
  virtual std::vector<FlowCounters> flows() const { return {}; }
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  // `connection` stays null until a peer has come and has proved that it holds this listener's handle.
  virtual Status accept(std::unique_ptr<Receiver>& connection) = 0;
};

// A connection that is being made. Destroying it gives up.
class Connecting {
 public:
  virtual ~Connecting() = default;
  virtual Status poll(std::unique_ptr<Sender>& connection) = 0;
};

class Net {
 public:
  virtual ~Net() = default;
  virtual const char* name() const = 0;  // "tcp", or what the plugin calls itself
  virtual int devices() const = 0;       // 0: it cannot be used here
  virtual Result<Properties> properties(int device) const = 0;
  virtual Result<std::unique_ptr<Listener>> listen(int device) = 0;
  virtual Result<std::unique_ptr<Connecting>> connect(int device, const Handle& handle) = 0;
};

}  // namespace stretto::net
