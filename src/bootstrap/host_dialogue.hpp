// The hosting end of one connection: from a stranger's first bytes through the handshake to a member of a
// session. For bootstrap/ only; one thread, the loop's.
#pragma once

#include "bootstrap/dialogue.hpp"
#include "bootstrap/session.hpp"

namespace stretto::bootstrap {

class HostDialogue final : public Dialogue {
 public:
  // Both outlive the dialogue. `nonce` must be fresh random bytes.
  HostDialogue(SessionDirectory& directory, Port& port, const Nonce& nonce)
      : directory_(directory), port_(port), nonce_(nonce) {}

  int64_t limit(FrameType type) const override;
  bool onFrame(FrameType type, std::span<const uint8_t> payload) override;
  void onClosed(const std::string& why) override;
  void onNotEncrypted(const std::string& why) override;
  bool trusted() const override { return stage_ == Stage::kMember; }

 private:
  enum class Stage : uint8_t { kAwaitHello, kAwaitJoin, kMember, kDone };

  bool onHello(std::span<const uint8_t> payload);
  bool onJoin(std::span<const uint8_t> payload);
  bool onMemberFrame(Session& session, FrameType type, std::span<const uint8_t> payload);
  bool onDeparture(Session& session, FrameType type, std::span<const uint8_t> payload);
  bool breakOff(Session& session, std::string why);
  void turnAway(uint64_t session, bool encrypts);
  void finishWith(SharedBytes frame);

  SessionDirectory& directory_;
  Port& port_;
  const Nonce nonce_;
  Nonce memberNonce_{};
  Stage stage_ = Stage::kAwaitHello;
  uint64_t session_ = 0;
  SessionKeys keys_;  // the session's, once it has been named
  int rank_ = -1;
};

}  // namespace stretto::bootstrap
