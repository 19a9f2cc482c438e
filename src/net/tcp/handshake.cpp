#include "net/tcp/handshake.hpp"

#include <cerrno>
#include <cstring>

#include "platform/clock.hpp"
#include "platform/random.hpp"

namespace stretto::net::tcp {
namespace {

constexpr double kMostSecondsUnanswered = 3;  // the kernel alone would try for two minutes

}  // namespace

std::string routeOf(const FileDescriptor& socket, const std::string& interface, const SocketAddress& peer) {
  const auto own = boundAddress(socket);
  return (interface.empty() ? "" : interface + " ") + toText(own.ok() ? own.value() : SocketAddress{}) +
         " to " + toText(peer);
}

bool isShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == EADDRNOTAVAIL;
}

Shake Caller::begin(FailedCall& failed) {
  begun_ = platform::monotonicNanoseconds();
  socket_ = beginConnect(to_, from_ != nullptr ? from_->address : SocketAddress{});
  if (socket_.valid()) return Shake::kGoesOn;
  failed.isOwn = isShortage(errno);
  failed.why = std::string("cannot connect to ") + toText(to_) + ": " + std::strerror(errno);
  return Shake::kFailed;
}

Shake Caller::connecting(std::string& why) {
  // Nothing can be written before it is connected, and an error shows at once.
  const int error = connectError(socket_);
  if (error != 0) {
    why = "cannot connect to " + toText(to_) + ": " + std::strerror(error);
    return Shake::kFailed;
  }
  if (!isConnected(socket_)) {
    if (platform::secondsSince(begun_) < kMostSecondsUnanswered) return Shake::kGoesOn;
    why = "nothing answers at " + toText(to_);
    return Shake::kFailed;
  }
  if (!writeWhole(socket_, hello_)) {
    why = toText(to_) + " took no greeting";
    return Shake::kFailed;
  }
  connected_ = true;
  begun_ = platform::monotonicNanoseconds();
  return Shake::kGoesOn;
}

double Caller::secondsUnanswered() const {
  return connected_ && !answered_ ? platform::secondsSince(begun_) : 0;
}

Shake Caller::answer(FailedCall& failed) {
  const IoOutcome outcome = challenge_.read(socket_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome != IoOutcome::kSome) {
    failed.why = toText(to_) + " ended the connection before it had answered";
    return Shake::kFailed;
  }
  const Challenge& challenge = challenge_.value;
  if (!equalInConstantTime(challenge.proof, proofOf(key_, kReceiverLabel, hello_, challenge.nonce))) {
    failed.impostor = true;
    failed.why = "who listens at " + toText(to_) + " does not know the key that is in the handle";
    return Shake::kFailed;
  }
  if (!writeWhole(socket_, Join{proofOf(key_, kSenderLabel, hello_, challenge.nonce)})) {
    failed.why = toText(to_) + " ended the connection";
    return Shake::kFailed;
  }
  answered_ = true;
  return Shake::kGoesOn;
}

Shake Caller::admitted(std::string& why) {
  const IoOutcome outcome = admission_.read(socket_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome == IoOutcome::kSome && admission_.value.magic == kMagic) return Shake::kDone;
  why = toText(to_) + " did not take the connection";
  return Shake::kFailed;
}

Shake Caller::poll(FailedCall& failed) {
  if (!socket_.valid()) {
    const Shake begun = begin(failed);
    if (begun == Shake::kFailed) return begun;
  }
  if (!connected_) {
    const Shake state = connecting(failed.why);
    if (state == Shake::kFailed || !connected_) return state;
  }
  if (!answered_) {
    const Shake state = answer(failed);
    if (state == Shake::kFailed || !answered_) return state;
  }
  return admitted(failed.why);
}

Joined Caller::take() {
  std::string route = routeOf(socket_, from_ != nullptr ? from_->name : "", to_);
  return {std::move(socket_), std::move(route)};
}

Shake Answerer::poll(const Key128& key, std::string& why) {
  if (!greeted_) {
    const IoOutcome outcome = hello_.read(socket_);
    if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
    if (outcome != IoOutcome::kSome) {
      why = "it closed without a word";
      return Shake::kFailed;
    }
    if (!isGood(hello_.value) || !fillRandom(nonce_).ok()) {
      why = "it sent bytes that are no greeting";
      return Shake::kFailed;
    }
    greeted_ = true;
    if (!writeWhole(socket_, Challenge{nonce_, proofOf(key, kReceiverLabel, hello_.value, nonce_)})) {
      why = "it took no challenge";
      return Shake::kFailed;
    }
  }
  const IoOutcome outcome = join_.read(socket_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome != IoOutcome::kSome) return Shake::kFailed;
  if (equalInConstantTime(join_.value.proof, proofOf(key, kSenderLabel, hello_.value, nonce_))) {
    return Shake::kDone;
  }
  why = "it does not know the key";
  return Shake::kFailed;
}

}  // namespace stretto::net::tcp
