#include "bootstrap/host_dialogue.hpp"

#include <string>

namespace stretto::bootstrap {

int64_t HostDialogue::limit(FrameType type) const {
  const bool member = type == FrameType::kExchange || type == FrameType::kQuery ||
                      type == FrameType::kNudge || type == FrameType::kGoodbye || type == FrameType::kLeft ||
                      type == FrameType::kLost;
  const bool welcome = (stage_ == Stage::kAwaitHello && type == FrameType::kHello) ||
                       (stage_ == Stage::kAwaitJoin && type == FrameType::kJoin) ||
                       (stage_ == Stage::kMember && member);
  return welcome ? longestPayload(type) : -1;
}

bool HostDialogue::onFrame(FrameType type, std::span<const uint8_t> payload) {
  switch (stage_) {
    case Stage::kAwaitHello:
      return onHello(payload);
    case Stage::kAwaitJoin:
      return onJoin(payload);
    case Stage::kMember:
      if (Session* session = directory_.find(session_)) {
        return onMemberFrame(*session, type, payload);
      }
      return complain("its session is gone");
    case Stage::kDone:
      break;
  }
  return true;  // on its way out: nothing it says matters
}

void HostDialogue::finishWith(SharedBytes frame) {
  port_.send(std::move(frame));
  port_.finish();
  stage_ = Stage::kDone;
}

bool HostDialogue::onHello(std::span<const uint8_t> payload) {
  Hello hello;
  if (!decode(payload, hello)) {
    return complain("malformed hello");
  }
  if (hello.wireVersion != kWireVersion) {
    finishWith(
        encode(Refusal{Code::kInvalidUsage, -1,
                       "this rank speaks wire protocol " + std::to_string(hello.wireVersion) +
                           ", but the process that hosts the rendezvous speaks " +
                           std::to_string(kWireVersion) + ": load one version of the library in all ranks"}));
    return true;
  }
  const std::optional<SessionKeys> keys = directory_.keysOf(hello.session);
  if (!keys) {
    const Refusal* ended = directory_.epitaph(hello.session);
    finishWith(ended != nullptr ? encode(*ended) : encode(NotYet{directory_.host().process}));
    return true;
  }
  if (hello.encrypted != keys->encryption.on) {
    turnAway(hello.session, keys->encryption.on);
    return true;
  }
  keys_ = *keys;
  session_ = hello.session;
  memberNonce_ = hello.nonce;
  stage_ = Stage::kAwaitJoin;
  port_.send(
      encode(Challenge{nonce_, proofOf(keys_.secret, kHostLabel, session_, memberNonce_, nonce_, {})}));
  if (keys_.encryption.on) {
    port_.encrypt(TlsRole::kServer, tlsKeyOf(keys_.secret, keys_.encryption, session_, nonce_, memberNonce_));
  }
  return true;
}

// Each end goes by what it was told itself: nobody between them can have them do without encryption. It has
// proved nothing yet, and so hears nothing about this process.
void HostDialogue::turnAway(uint64_t session, bool encrypts) {
  const char* const all = ": set STRETTO_TLS=1 (or call ncclSetEncryption) on all ranks, or on none";
  const std::string forIt =
      encrypts ? "this rank sends plain text, but the process that hosts the session encrypts"
               : "this rank encrypts, but the process that hosts the session sends plain text";
  const std::string forUs = encrypts ? "a rank sends plain text, and this process encrypts"
                                     : "a rank encrypts, and this process sends plain text";
  finishWith(encode(Refusal{Code::kInvalidUsage, -1, forIt + all}));
  if (Session* const waiting = directory_.find(session)) waiting->noteRefusal(forUs + all);
}

void HostDialogue::onNotEncrypted(const std::string& why) {
  if (Session* const waiting = directory_.find(session_)) {
    waiting->noteRefusal("a connection could not be encrypted: " + why +
                         "; all ranks must give ncclSetEncryption the same secret, or none");
  }
}

bool HostDialogue::onJoin(std::span<const uint8_t> payload) {
  if (!provesSecret(payload, keys_.secret, session_, nonce_, memberNonce_)) {
    return complain("it does not know the session's secret");
  }
  Join join;
  if (!decode(payload, join)) {
    return complain("malformed join");
  }
  Session* session = directory_.findOrOpen(session_);
  if (session == nullptr) {
    finishWith(encode(NotYet{directory_.host().process}));
    return true;
  }
  if (const std::optional<Refusal> refusal = session->admit(join.ranks, join.who, port_)) {
    finishWith(encode(*refusal));
    directory_.settle(session_);  // it may have been opened for this one
    return true;
  }
  rank_ = join.who.rank;
  stage_ = Stage::kMember;
  return true;
}

bool HostDialogue::onMemberFrame(Session& session, FrameType type, std::span<const uint8_t> payload) {
  if (type == FrameType::kExchange) {
    Exchange part;
    std::string complaint = "malformed exchange";
    if (!decode(payload, part) || !session.contribute(rank_, part, complaint)) {
      return breakOff(session, complaint);
    }
    return true;
  }
  if (type == FrameType::kQuery) {
    QueryKind kind;
    if (!decodeQuery(payload, kind)) {
      return breakOff(session, "malformed query");
    }
    session.answer(rank_, kind);
    return true;
  }
  if (type == FrameType::kNudge) {
    Nudge nudge;
    if (!decode(payload, nudge)) {
      return breakOff(session, "malformed nudge");
    }
    session.nudge(rank_, nudge);
    return true;
  }
  if (type == FrameType::kLeft || type == FrameType::kLost) {
    return onDeparture(session, type, payload);
  }
  Goodbye goodbye;
  if (type != FrameType::kGoodbye || !decode(payload, goodbye)) {
    return breakOff(session, "malformed goodbye");
  }
  stage_ = Stage::kDone;
  // First the others' news, then the word of it to the member: when that arrives, its process may end as it
  // likes.
  session.leave(rank_, goodbye);
  if (session.vouches(directory_.hasMember(session_))) {
    port_.send(encode(Left{static_cast<uint32_t>(rank_), goodbye.exchanges}));
  }
  port_.finish();
  directory_.settle(session_);
  return true;
}

// What the member knew when it came to this host.
bool HostDialogue::onDeparture(Session& session, FrameType type, std::span<const uint8_t> payload) {
  Lost loss;
  Left left;
  const bool lost = type == FrameType::kLost;
  const bool good = lost ? decode(payload, loss) : decode(payload, left);
  const uint32_t rank = lost ? loss.rank : left.rank;
  if (session.isRendezvous() || !good || rank >= session.ranks()) {
    return breakOff(session, "malformed news of another rank");
  }
  session.learn({.rank = static_cast<int>(rank),
                 .left = !lost,
                 .exchanges = left.exchanges,
                 .kind = loss.kind,
                 .text = loss.text});
  return true;
}

bool HostDialogue::breakOff(Session& session, std::string why) {
  stage_ = Stage::kDone;
  session.lose(rank_, LossKind::kBroke, "it broke the bootstrap protocol: " + why);
  directory_.settle(session_);
  return complain(std::move(why));
}

void HostDialogue::onClosed(const std::string& why) {
  if (stage_ != Stage::kMember) {
    return;
  }
  stage_ = Stage::kDone;
  if (Session* session = directory_.find(session_)) {
    session->lose(rank_, LossKind::kDied, why);
    directory_.settle(session_);
  }
}

}  // namespace stretto::bootstrap
