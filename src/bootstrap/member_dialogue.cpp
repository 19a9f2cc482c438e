#include "bootstrap/member_dialogue.hpp"

#include <string>

namespace stretto::bootstrap {

void MemberDialogue::open() {
  link_->reached(Joining::kConnected);
  port_.send(encode(Hello{kWireVersion, link_->where.session, nonce_, link_->where.encryption.on}));
}

int64_t MemberDialogue::limit(FrameType type) const {
  bool expected = false;
  switch (type) {
    case FrameType::kChallenge:
      expected = stage_ == Stage::kAwaitChallenge;
      break;
    case FrameType::kNotYet:
    case FrameType::kRefused:
      expected = stage_ == Stage::kAwaitChallenge || stage_ == Stage::kAwaitWelcome;
      break;
    case FrameType::kWelcome:
      expected = stage_ == Stage::kAwaitWelcome;
      break;
    case FrameType::kTable:
      expected = stage_ == Stage::kAwaitTable;
      break;
    case FrameType::kMissing:
    case FrameType::kLost:
    case FrameType::kHostLeaving:
      expected = stage_ == Stage::kAwaitTable || stage_ == Stage::kMember;
      break;
    case FrameType::kExchangeResult:
    case FrameType::kExchangeFailed:
    case FrameType::kLeft:
    case FrameType::kNudge:
      expected = stage_ == Stage::kMember;
      break;
    default:
      break;
  }
  return expected ? longestPayload(type) : -1;
}

bool MemberDialogue::onFrame(FrameType type, std::span<const uint8_t> payload) {
  switch (stage_) {
    case Stage::kAwaitChallenge:
    case Stage::kAwaitWelcome:
      return onHandshake(type, payload);
    case Stage::kAwaitTable:
      if (type == FrameType::kTable) {
        std::vector<MemberInfo> members;
        if (!decodeTable(payload, link_->ranks, members)) return malformed();
        stage_ = Stage::kMember;
        link_->joined(heard_.tables.keep(std::move(members)));
        return true;
      }
      return onNews(type, payload);
    case Stage::kMember:
      return onNews(type, payload);
    case Stage::kDone:
      break;
  }
  return true;
}

bool MemberDialogue::malformed() {
  return complain("it sent a malformed message");
}

bool MemberDialogue::onHandshake(FrameType type, std::span<const uint8_t> payload) {
  switch (type) {
    case FrameType::kChallenge:
      return onChallenge(payload);
    case FrameType::kWelcome:
      return onWelcome(payload);
    case FrameType::kRefused:
      return onRefused(payload);
    case FrameType::kNotYet:
      return onNotYet(payload);
    default:
      return malformed();
  }
}

bool MemberDialogue::onNotYet(std::span<const uint8_t> payload) {
  NotYet notYet;
  if (!decode(payload, notYet)) {
    return malformed();
  }
  if (process_ != 0 && notYet.process != process_) {
    return stranger();
  }
  link_->reached(Joining::kNotOpened);
  stage_ = Stage::kDone;
  retry_ = true;
  return complain("the session is not open yet");
}

bool MemberDialogue::stranger() {
  stage_ = Stage::kDone;
  foreign_ = true;
  return complain("another process listens there");
}

bool MemberDialogue::onChallenge(std::span<const uint8_t> payload) {
  Challenge challenge;
  if (!decode(payload, challenge)) {
    return malformed();
  }
  const Meeting& where = link_->where;
  const Hash128 expected = proofOf(where.secret, kHostLabel, where.session, nonce_, challenge.nonce, {});
  if (!equalInConstantTime(expected, challenge.proof)) {
    if (process_ != 0) return stranger();
    stage_ = Stage::kDone;
    link_->refused(
        {Code::kInvalidArgument, -1,
         "the process at " + toText(where.address) +
             " does not share this unique id's secret: the id is wrong, or the process that made it has "
             "ended and another one listens there"});
    return complain("it does not know the session's secret");
  }
  stage_ = Stage::kAwaitWelcome;
  if (where.encryption.on) {
    port_.encrypt(TlsRole::kClient,
                  tlsKeyOf(where.secret, where.encryption, where.session, challenge.nonce, nonce_));
  }
  port_.send(encodeJoin(where.secret, where.session, challenge.nonce, nonce_,
                        static_cast<uint32_t>(link_->ranks), link_->self));
  return true;
}

bool MemberDialogue::onWelcome(std::span<const uint8_t> payload) {
  if (!decode(payload, host_)) {
    return malformed();
  }
  if (process_ == 0) {
    stage_ = Stage::kAwaitTable;
    link_->welcomed(host_);
    return true;
  }
  if (host_.process != process_) {
    return stranger();
  }
  stage_ = Stage::kMember;
  return true;
}

bool MemberDialogue::onRefused(std::span<const uint8_t> payload) {
  Refusal why;
  if (!decode(payload, why)) {
    return malformed();
  }
  stage_ = Stage::kDone;
  if (process_ != 0) {  // it knows less than we do, or more, which we will hear
    retry_ = true;
    return complain(std::move(why.text));
  }
  link_->refused(std::move(why));
  port_.finish();
  return true;
}

bool MemberDialogue::onNews(FrameType type, std::span<const uint8_t> payload) {
  switch (type) {
    case FrameType::kExchangeResult:
      return link_->exchanged(payload, heard_) || malformed();
    case FrameType::kExchangeFailed: {
      ExchangeFailure failure;
      if (!decode(payload, failure)) return malformed();
      link_->exchangeRefused(std::move(failure));
      return true;
    }
    case FrameType::kMissing: {
      Missing missing;
      if (!decode(payload, missing)) return malformed();
      link_->told(std::move(missing));
      return true;
    }
    case FrameType::kLeft: {
      Left left;
      if (!decode(payload, left) || left.rank >= static_cast<uint32_t>(link_->ranks)) return malformed();
      link_->peerLeft(left);
      return true;
    }
    case FrameType::kLost:
      return onLoss(payload);
    case FrameType::kNudge: {
      Nudge nudge;
      if (!decode(payload, nudge)) return malformed();
      link_->nudged(nudge);
      return true;
    }
    case FrameType::kHostLeaving:
      stage_ = Stage::kDone;
      link_->hostLeaves(host_);
      port_.finish();
      return true;
    default:
      return malformed();
  }
}

bool MemberDialogue::onLoss(std::span<const uint8_t> payload) {
  Lost loss;
  if (!decode(payload, loss) || loss.rank >= static_cast<uint32_t>(link_->ranks)) {
    return malformed();
  }
  const bool joining = stage_ == Stage::kAwaitTable;
  link_->peerLost(loss);
  if (joining) {  // the session has failed for everybody
    port_.finish();
    stage_ = Stage::kDone;
  }
  return true;
}

void MemberDialogue::onLate(FrameType type, std::span<const uint8_t> payload) {
  Lost loss;
  Left left;
  if (!link_->isJoined()) {
    return;
  }
  if (type == FrameType::kLeft && decode(payload, left)) {
    acknowledged_ = acknowledged_ || left.rank == static_cast<uint32_t>(link_->self.rank);
    link_->peerLeft(left);
  } else if (type == FrameType::kLost && decode(payload, loss)) {
    link_->peerLost(loss);
  }
}

// The host has proved the secret: what differs is what ncclSetEncryption was given, or somebody is between.
void MemberDialogue::onNotEncrypted(const std::string& why) {
  if (process_ != 0) return;  // it is tried again
  stage_ = Stage::kDone;
  link_->refused({Code::kRemote, -1,
                  "the connection to the rendezvous at " + toText(link_->where.address) + " was given up: " +
                      why + "; all ranks must give ncclSetEncryption the same secret, or none"});
}

void MemberDialogue::onClosed(const std::string& why) {
  const Stage stage = stage_;
  stage_ = Stage::kDone;
  switch (stage) {
    case Stage::kAwaitChallenge:
    case Stage::kAwaitWelcome:
      retry_ = true;
      return;
    case Stage::kAwaitTable:
    case Stage::kMember:
      link_->hostVanished(host_, why);
      return;
    case Stage::kDone:
      return;
  }
}

}  // namespace stretto::bootstrap
