// The member's end of one connection: the handshake, and then what the host tells, written down in the
// ClientLink. For bootstrap/ only; one thread, the loop's.
#pragma once

#include <memory>

#include "bootstrap/client_link.hpp"
#include "bootstrap/dialogue.hpp"

namespace stretto::bootstrap {

class MemberDialogue final : public Dialogue {
 public:
  // `port` outlives the dialogue. `nonce` must be fresh random bytes.
  MemberDialogue(std::shared_ptr<ClientLink> link, Port& port, const Nonce& nonce)
      : link_(std::move(link)), port_(port), nonce_(nonce) {}

  // The connection stands: says hello.
  void open();

  int64_t limit(FrameType type) const override;
  bool onFrame(FrameType type, std::span<const uint8_t> payload) override;
  void onClosed(const std::string& why) override;
  bool trusted() const override { return stage_ >= Stage::kAwaitTable; }

  // The host may count us in, so that leaving takes a goodbye.
  bool mayBeMember() const { return stage_ == Stage::kAwaitWelcome || trusted(); }
  // The connection ended before it came to anything: another one may do better.
  bool wantsRetry() const { return retry_; }
  // The owner leaves: whatever happens to the connection now is no news.
  void farewell() { stage_ = Stage::kDone; }

 private:
  enum class Stage : uint8_t { kAwaitChallenge, kAwaitWelcome, kAwaitTable, kMember, kDone };

  bool onHandshake(FrameType type, std::span<const uint8_t> payload);
  bool onChallenge(std::span<const uint8_t> payload);
  bool onWelcome(std::span<const uint8_t> payload);
  bool onRefused(std::span<const uint8_t> payload);
  bool onNews(FrameType type, std::span<const uint8_t> payload);
  bool onLoss(std::span<const uint8_t> payload);
  bool malformed();

  const std::shared_ptr<ClientLink> link_;
  Port& port_;
  const Nonce nonce_;
  Stage stage_ = Stage::kAwaitChallenge;
  bool retry_ = false;
};

}  // namespace stretto::bootstrap
