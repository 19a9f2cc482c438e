#include "bootstrap/call_dialogue.hpp"

namespace stretto::bootstrap {

int64_t CallDialogue::limit(FrameType type) const {
  const bool answer =
      type == FrameType::kChallenge || type == FrameType::kNotYet || type == FrameType::kRefused;
  return answer && !answered_ ? longestPayload(type) : -1;
}

bool CallDialogue::onFrame(FrameType type, std::span<const uint8_t> payload) {
  if (type == FrameType::kChallenge) {
    Challenge challenge;
    const bool good = decode(payload, challenge);
    const Hash128 expected = proofOf(secret_, kHostLabel, session_, nonce_, challenge.nonce, {});
    foreign_ = !good || !equalInConstantTime(expected, challenge.proof);
    answered_ = !foreign_;
    return answered_ || complain("another process listens there");
  }
  NotYet notYet;
  if (type == FrameType::kNotYet) foreign_ = !decode(payload, notYet) || notYet.process != process_;
  return complain("the process lives, but has no member there");
}

}  // namespace stretto::bootstrap
