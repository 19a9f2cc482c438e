// How both ends of a flow prove to each other that they know the key in the listener's handle. For net/tcp
// only; each object belongs to one thread.
#pragma once

#include <array>
#include <string>

#include "net/tcp/flow.hpp"
#include "net/tcp/settings.hpp"
#include "net/tcp/wire.hpp"

namespace stretto::net::tcp {

enum class Shake : uint8_t { kGoesOn, kDone, kFailed };

// Why who calls has not been joined.
struct FailedCall {
  std::string why;
  bool impostor = false;  // somebody answered who does not know the key
  bool isOwn = false;     // this process gets no socket
  bool isFinal = false;   // it would be the same the next time
};

// Errors by which the system says that it has no more of something.
bool isShortage(int error);

// "eth0 10.0.0.1:40112 to 10.0.0.2:4711", of a socket that is connected.
std::string routeOf(const FileDescriptor& socket, const std::string& interface, const SocketAddress& peer);

// Exactly so many bytes, which may come in several pieces.
template <typename T>
class Arriving {
 public:
  // kWouldBlock until all are there.
  IoOutcome read(ByteStream& stream) {
    const Transfer got = stream.receive(bytesOf(value).subspan(filled_));
    if (got.outcome != IoOutcome::kSome) return got.outcome;
    filled_ += got.bytes;
    return filled_ == sizeof(T) ? IoOutcome::kSome : IoOutcome::kWouldBlock;
  }
  T value{};

 private:
  size_t filled_ = 0;
};
// A message of the handshake, which always fits into the buffer of a new socket.
template <typename T>
bool writeWhole(ByteStream& stream, T value) {
  const auto bytes = bytesOf(value);
  const IoSpan piece{bytes.data(), bytes.size()};
  const Transfer sent = stream.send(std::span(&piece, 1));
  return sent.outcome == IoOutcome::kSome && sent.bytes == bytes.size();
}

// The end that connects: one flow.
class Caller {
 public:
  Caller(const Key128& key, const Hello& hello, const SocketAddress& to, const NetworkInterface* from,
         const Encryption& encryption = {})
      : key_(key), hello_(hello), to_(to), from_(from), encryption_(encryption) {}
  Shake poll(FailedCall& failed);
  Joined take();
  // For how long who was greeted has not answered; 0 if that is not waited for.
  double secondsUnanswered() const;

 private:
  Shake begin(FailedCall& failed);
  Shake connecting(std::string& why);
  Shake answer(FailedCall& failed);
  Shake encrypting(FailedCall& failed);
  Shake admitted(std::string& why);

  const Key128 key_;
  const Hello hello_;
  const SocketAddress to_;
  const NetworkInterface* from_;  // null: whichever leads there
  const Encryption encryption_;
  ByteStream stream_;
  uint64_t begun_ = 0;  // to connect, then to wait for the answer
  bool connected_ = false;
  bool answered_ = false;
  bool sealed_ = false;  // what follows is encrypted, if it is to be
  Arriving<Challenge> challenge_;
  Arriving<Admission> admission_;
};

// The end that was connected to: somebody who may be anybody.
class Answerer {
 public:
  explicit Answerer(ByteStream stream, const Encryption& encryption = {})
      : stream_(std::move(stream)), encryption_(encryption) {}
  // `why` stays empty where nobody is dropped: who had greeted closes, as a peer does that tries another
  // address.
  Shake poll(const Key128& key, std::string& why);
  // Who failed knows the key, and only one of the two encrypts.
  bool disagrees() const { return disagrees_; }
  // Of a hello that is proved, after kDone.
  const Hello& hello() const { return hello_.value; }
  // Tells the other end that it is connected. False if it is gone.
  bool admit() { return writeWhole(stream_, Admission{}); }
  ByteStream take() { return std::move(stream_); }
  uint64_t since = 0;  // when it came

 private:
  Shake greet(const Key128& key, std::string& why);
  Shake prove(const Key128& key, std::string& why);

  ByteStream stream_;
  const Encryption encryption_;
  bool greeted_ = false;
  bool proved_ = false;
  bool disagrees_ = false;
  Challenge challenge_;
  Arriving<Hello> hello_;
  Arriving<Join> join_;
};

}  // namespace stretto::net::tcp
