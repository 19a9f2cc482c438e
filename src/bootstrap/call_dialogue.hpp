// How a host finds out whether a process lives whose member has not come to it: it connects to that process's
// own Service and says hello. Whoever answers tells whether he is the one; as long as nobody hangs up, the
// process lives, be it stopped. For bootstrap/ only; one thread, the loop's.
#pragma once

#include "bootstrap/dialogue.hpp"

namespace stretto::bootstrap {

class CallDialogue final : public Dialogue {
 public:
  // `port` outlives the dialogue. `nonce` must be fresh random bytes. `process` is who should answer.
  CallDialogue(Port& port, uint64_t session, const Key128& secret, uint64_t process, const Nonce& nonce,
               bool encrypted = false)
      : port_(port),
        session_(session),
        secret_(secret),
        process_(process),
        nonce_(nonce),
        encrypted_(encrypted) {}

  uint64_t session() const { return session_; }
  uint64_t process() const { return process_; }

  void open() { port_.send(encode(Hello{kWireVersion, session_, nonce_, encrypted_})); }
  // Somebody else answers where the process should be.
  bool foreign() const { return foreign_; }

  int64_t limit(FrameType type) const override;
  bool onFrame(FrameType type, std::span<const uint8_t> payload) override;
  void onClosed(const std::string&) override {}
  bool trusted() const override { return answered_; }

 private:
  Port& port_;
  const uint64_t session_;
  const Key128 secret_;
  const uint64_t process_;
  const Nonce nonce_;
  const bool encrypted_;
  bool answered_ = false;
  bool foreign_ = false;
};

}  // namespace stretto::bootstrap
