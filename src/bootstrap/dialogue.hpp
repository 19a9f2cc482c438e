// The two sides of one connection as state machines without sockets: frames in, frames out. What carries
// the bytes (a socket in the Service's loop, a vector in a test or a fuzzer) implements Port and feeds a
// Dialogue. For bootstrap/ only; everything here lives on one thread, the loop's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bootstrap/wire.hpp"
#include "platform/byte_stream.hpp"

namespace stretto::bootstrap {

// Where a dialogue's frames go. Calls only queue: none re-enters a dialogue.
class Port {
 public:
  virtual void send(SharedBytes frame) = 0;
  // Sends what is queued, then ends the connection; whatever still arrives is ignored.
  virtual void finish() = 0;
  // Everything behind what was sent and received so far is encrypted. Without a key that fails.
  virtual void encrypt(TlsRole role, const std::optional<TlsKey>& key) = 0;

 protected:
  ~Port() = default;
};

class Dialogue {
 public:
  virtual ~Dialogue() = default;

  // The longest payload of `type` that may come now; negative when that type may not.
  virtual int64_t limit(FrameType type) const = 0;
  // False when the connection must be dropped; complaint() then says why.
  virtual bool onFrame(FrameType type, std::span<const uint8_t> payload) = 0;
  // What still comes after Port::finish(). It may be anything.
  virtual void onLate(FrameType, std::span<const uint8_t>) {}
  // The connection is gone, `why` in words. Called once; no other call follows.
  virtual void onClosed(const std::string& why) = 0;
  // It could not be encrypted as asked, and closes.
  virtual void onNotEncrypted(const std::string& /*why*/) {}
  // Whether the other end has proved that it belongs here.
  virtual bool trusted() const = 0;

  const std::string& complaint() const { return complaint_; }

 protected:
  bool complain(std::string text) {
    complaint_ = std::move(text);
    return false;
  }

 private:
  std::string complaint_;
};

}  // namespace stretto::bootstrap
