// A connected socket, and what encrypts it if anything does: who moves bytes over connections between
// processes moves them over a ByteStream and need not know which. Any folder may include this. One thread at
// a time uses it; once it is encrypted, one that sends and one that receives.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "platform/socket.hpp"
#include "platform/tls.hpp"

namespace stretto {

class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(FileDescriptor socket) : socket_(std::move(socket)) {}  // NOLINT: a plain one is a socket

  const FileDescriptor& socket() const { return socket_; }
  bool valid() const { return socket_.valid(); }
  void reset() { release().reset(); }
  // Without what encrypted it: only to be closed.
  FileDescriptor release() {
    tls_.reset();
    shaking_ = false;
    return std::move(socket_);
  }

  // From here on. Both ends do it at the same byte, one as client. Encryption must have been found to be on.
  // Without a key the handshake fails.
  void encrypt(TlsRole role, const std::optional<TlsKey>& key);
  bool isEncrypted() const { return tls_ != nullptr; }
  // To be called until it does not go on, once it is encrypted.
  TlsHandshake shakeHands(std::string& why) {
    const TlsHandshake state = tls_->shakeHands(socket_, why);
    shaking_ = state != TlsHandshake::kDone;
    return state;
  }
  // It is encrypted, and the handshake was not done.
  bool isShaking() const { return shaking_; }

  // As sendSome and receiveSome, with their promises; kFailed has an error that wordsOf() knows.
  Transfer send(std::span<const IoSpan> pieces) {
    return tls_ == nullptr ? sendSome(socket_, pieces) : tls_->send(socket_, pieces);
  }
  Transfer receive(std::span<const IoSpan> pieces) {
    return tls_ == nullptr ? receiveSome(socket_, pieces) : tls_->receive(socket_, pieces);
  }
  Transfer receive(std::span<uint8_t> into) {
    const IoSpan piece{into.data(), into.size()};
    return receive(std::span(&piece, 1));
  }
  // Bytes have come of which no poller tells, and: some wait for the socket to take them.
  bool holdsMore() const { return tls_ != nullptr && tls_->holdsMore(); }
  bool isFlushed() const { return tls_ == nullptr || tls_->isFlushed(); }

 private:
  FileDescriptor socket_;
  std::unique_ptr<TlsSession> tls_;
  bool shaking_ = false;
};

// Why a Transfer failed.
std::string wordsOf(int error);

}  // namespace stretto
