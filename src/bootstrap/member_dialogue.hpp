// The member's end of one connection: the handshake, and then what the host tells, written down in the
// ClientLink. For bootstrap/ only; one thread, the loop's.
#pragma once

#include <memory>

#include "bootstrap/client_link.hpp"
#include "bootstrap/dialogue.hpp"

namespace stretto::bootstrap {

class MemberDialogue final : public Dialogue {
 public:
  // `port` and `heard` outlive the dialogue. `nonce` must be fresh random bytes. `process` is who should
  // answer, a further host of a session that has been joined; 0 is for the rendezvous, which gathers the
  // members.
  MemberDialogue(std::shared_ptr<ClientLink> link, Port& port, Heard& heard, const Nonce& nonce,
                 uint64_t process = 0)
      : link_(std::move(link)), port_(port), heard_(heard), nonce_(nonce), process_(process) {}

  // The connection stands: says hello.
  void open();

  int64_t limit(FrameType type) const override;
  bool onFrame(FrameType type, std::span<const uint8_t> payload) override;
  void onLate(FrameType type, std::span<const uint8_t> payload) override;
  void onClosed(const std::string& why) override;
  void onNotEncrypted(const std::string& why) override;
  bool trusted() const override { return stage_ >= Stage::kAwaitTable; }

  // The host may count us in, so that leaving takes a goodbye.
  bool mayBeMember() const { return stage_ == Stage::kAwaitWelcome || trusted(); }
  // All have joined, and the host counts us in.
  bool isMember() const { return stage_ == Stage::kMember; }
  // The connection ended before it came to anything: another one may do better.
  bool wantsRetry() const { return retry_; }
  // Somebody else answers where the process should be.
  bool foreign() const { return foreign_; }
  // The host has passed our goodbye on.
  bool acknowledged() const { return acknowledged_; }
  // Its host is none that gathered the members.
  bool isFurther() const { return process_ != 0; }
  // Who hosts; valid once we are a member.
  const Welcome& host() const { return host_; }
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
  bool onNotYet(std::span<const uint8_t> payload);
  bool stranger();
  bool malformed();

  const std::shared_ptr<ClientLink> link_;
  Port& port_;
  Heard& heard_;
  const Nonce nonce_;
  const uint64_t process_;
  Stage stage_ = Stage::kAwaitChallenge;
  Welcome host_;
  bool retry_ = false;
  bool foreign_ = false;
  bool acknowledged_ = false;
};

}  // namespace stretto::bootstrap
