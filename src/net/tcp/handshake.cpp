#include "net/tcp/handshake.hpp"

#include <cerrno>
#include <cstring>

#include "platform/clock.hpp"
#include "platform/random.hpp"

namespace stretto::net::tcp {
namespace {

constexpr double kMostSecondsUnanswered = 3;  // the kernel alone would try for two minutes

// Both ends decide by what they were told to do, never by what the other says: so nobody between them can
// have them do without.
std::string disagreement(bool here) {
  return std::string("it ") +
         (here ? "sends plain text, and this process encrypts"
               : "encrypts, and this process sends plain text") +
         ": set STRETTO_TLS=1 (or call ncclSetEncryption) on all ranks, or on none; nothing was sent";
}

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
  stream_ = beginConnect(to_, from_ != nullptr ? from_->address : SocketAddress{});
  if (stream_.valid()) return Shake::kGoesOn;
  failed.isOwn = isShortage(errno);
  failed.why = std::string("cannot connect to ") + toText(to_) + ": " + std::strerror(errno);
  return Shake::kFailed;
}

Shake Caller::connecting(std::string& why) {
  // Nothing can be written before it is connected, and an error shows at once.
  const int error = connectError(stream_.socket());
  if (error != 0) {
    why = "cannot connect to " + toText(to_) + ": " + std::strerror(error);
    return Shake::kFailed;
  }
  if (!isConnected(stream_.socket())) {
    if (platform::secondsSince(begun_) < kMostSecondsUnanswered) return Shake::kGoesOn;
    why = "nothing answers at " + toText(to_);
    return Shake::kFailed;
  }
  if (!writeWhole(stream_, hello_)) {
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
  const IoOutcome outcome = challenge_.read(stream_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome != IoOutcome::kSome) {
    failed.why = toText(to_) + " ended the connection before it had answered";
    return Shake::kFailed;
  }
  const Challenge& challenge = challenge_.value;
  if (!equalInConstantTime(challenge.proof, proofOf(key_, kReceiverLabel, hello_, challenge))) {
    failed.impostor = true;
    failed.why = "who listens at " + toText(to_) + " does not know the key that is in the handle";
    return Shake::kFailed;
  }
  if (!writeWhole(stream_, Join{proofOf(key_, kSenderLabel, hello_, challenge)})) {
    failed.why = toText(to_) + " ended the connection";
    return Shake::kFailed;
  }
  answered_ = true;
  if (challenge.encrypted == hello_.encrypted) {
    if (encryption_.on) stream_.encrypt(TlsRole::kClient, tlsKeyOf(key_, encryption_, hello_, challenge));
    sealed_ = !encryption_.on;
    return Shake::kGoesOn;
  }
  failed.isFinal = true;  // the other end knows now, too: it has our proof
  failed.why = toText(to_) + ": " + disagreement(encryption_.on);
  return Shake::kFailed;
}

Shake Caller::encrypting(FailedCall& failed) {
  std::string why;
  const TlsHandshake state = stream_.shakeHands(why);
  sealed_ = state == TlsHandshake::kDone;
  if (state == TlsHandshake::kDone || state == TlsHandshake::kGoesOn) return Shake::kGoesOn;
  failed.why = toText(to_) + ": " + why;
  return Shake::kFailed;
}

Shake Caller::admitted(std::string& why) {
  const IoOutcome outcome = admission_.read(stream_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome == IoOutcome::kSome && admission_.value.magic == kMagic) return Shake::kDone;
  why = toText(to_) + " did not take the connection";
  return Shake::kFailed;
}

Shake Caller::poll(FailedCall& failed) {
  if (!stream_.valid()) {
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
  if (!sealed_) {
    const Shake state = encrypting(failed);
    if (state == Shake::kFailed || !sealed_) return state;
  }
  return admitted(failed.why);
}

Joined Caller::take() {
  std::string route = routeOf(stream_.socket(), from_ != nullptr ? from_->name : "", to_);
  return {std::move(stream_), std::move(route)};
}

// Who has said hello is challenged.
Shake Answerer::greet(const Key128& key, std::string& why) {
  const IoOutcome outcome = hello_.read(stream_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome != IoOutcome::kSome) {
    why = "it closed without a word";
    return Shake::kFailed;
  }
  if (!isGood(hello_.value) || !fillRandom(challenge_.nonce).ok()) {
    why = "it sent bytes that are no greeting";
    return Shake::kFailed;
  }
  greeted_ = true;
  challenge_.encrypted = encryption_.on ? 1 : 0;
  challenge_.proof = proofOf(key, kReceiverLabel, hello_.value, challenge_);
  if (writeWhole(stream_, challenge_)) return Shake::kGoesOn;
  why = "it took no challenge";
  return Shake::kFailed;
}

Shake Answerer::prove(const Key128& key, std::string& why) {
  const IoOutcome outcome = join_.read(stream_);
  if (outcome == IoOutcome::kWouldBlock) return Shake::kGoesOn;
  if (outcome != IoOutcome::kSome) return Shake::kFailed;
  if (!equalInConstantTime(join_.value.proof, proofOf(key, kSenderLabel, hello_.value, challenge_))) {
    why = "it does not know the key";
    return Shake::kFailed;
  }
  proved_ = true;
  disagrees_ = hello_.value.encrypted != challenge_.encrypted;
  if (disagrees_) {
    why = disagreement(encryption_.on);
    return Shake::kFailed;
  }
  if (!encryption_.on) return Shake::kDone;
  stream_.encrypt(TlsRole::kServer, tlsKeyOf(key, encryption_, hello_.value, challenge_));
  return Shake::kGoesOn;
}

Shake Answerer::poll(const Key128& key, std::string& why) {
  if (!greeted_) {
    const Shake state = greet(key, why);
    if (state == Shake::kFailed || !greeted_) return state;
  }
  if (!proved_) {
    const Shake state = prove(key, why);
    if (state != Shake::kGoesOn || !proved_) return state;
  }
  if (!stream_.isEncrypted()) return Shake::kGoesOn;  // it was done before
  switch (stream_.shakeHands(why)) {
    case TlsHandshake::kGoesOn:
      return Shake::kGoesOn;
    case TlsHandshake::kDone:
      return Shake::kDone;
    case TlsHandshake::kEnded:
    case TlsHandshake::kFailed:
      break;
  }
  return Shake::kFailed;
}

}  // namespace stretto::net::tcp
