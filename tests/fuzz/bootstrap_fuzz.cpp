// Feeds arbitrary bytes to everything of the bootstrap that reads bytes from elsewhere: unique ids, and both
// ends of a connection in each of their states, without a socket. The first byte chooses which.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "bootstrap/call_dialogue.hpp"
#include "bootstrap/client_link.hpp"
#include "bootstrap/host_dialogue.hpp"
#include "bootstrap/member_dialogue.hpp"
#include "bootstrap/session.hpp"
#include "bootstrap/unique_id.hpp"

namespace stretto::bootstrap {
namespace {

constexpr uint64_t kSession = 1;
constexpr Key128 kSecret{1, 2, 3};
constexpr Nonce kNonce{4, 5, 6};

// Keeps the last frame, as the other end would see it.
class LastFrame final : public Port {
 public:
  void send(SharedBytes frame) override { last = std::move(frame); }
  void finish() override {}
  void encrypt(TlsRole, const std::optional<TlsKey>&) override {}
  std::span<const uint8_t> payload() const { return std::span(*last).subspan(8); }

  SharedBytes last;
};

// As Connection does it: limits first, then the dialogue, and the end of it at the first complaint.
void converse(Dialogue& dialogue, std::span<const uint8_t> data) {
  FrameSplitter splitter;
  while (!data.empty()) {
    const size_t piece = std::min<size_t>(data.size(), 1 + data.front() % 97);
    const auto verdict = splitter.feed(
        data.first(piece), [&](FrameType type) { return dialogue.limit(type); },
        [&](FrameType type, std::span<const uint8_t> payload) { return dialogue.onFrame(type, payload); });
    if (verdict != FrameSplitter::Verdict::kGoOn) break;
    data = data.subspan(piece);
  }
  dialogue.onClosed("the input ends");
}

MemberInfo member(int rank) {
  MemberInfo who;
  who.rank = rank;
  who.host = "host";
  return who;
}

SharedBytes joinAnswering(const LastFrame& port, int rank, int ranks) {
  Challenge challenge;
  decode(port.payload(), challenge);
  return encodeJoin(kSecret, kSession, challenge.nonce, kNonce, static_cast<uint32_t>(ranks), member(rank));
}

void feedFrame(Dialogue& dialogue, const SharedBytes& frame) {
  dialogue.onFrame(static_cast<FrameType>((*frame)[4]), std::span(*frame).subspan(8));
}

// The host's end: a stranger (0), after its hello (1), a waiting member (2), a member among two (3).
void fuzzHost(int stage, std::span<const uint8_t> data) {
  SessionDirectory directory(Welcome{1, 2, "host"});
  directory.open(kSession, {kSecret});
  LastFrame port;
  LastFrame otherPort;
  HostDialogue dialogue(directory, port, kNonce);
  HostDialogue other(directory, otherPort, kNonce);
  if (stage >= 1) feedFrame(dialogue, encode(Hello{kWireVersion, kSession, kNonce}));
  if (stage >= 2) feedFrame(dialogue, joinAnswering(port, 0, 2));
  if (stage >= 3) {
    feedFrame(other, encode(Hello{kWireVersion, kSession, kNonce}));
    feedFrame(other, joinAnswering(otherPort, 1, 2));
    feedFrame(other, encodeExchange(0, "name", data.first(std::min<size_t>(data.size(), 16))));
  }
  converse(dialogue, data);
}

// A further host, which opens the session for the first who proves the secret: a stranger (0), after its
// hello (1), a member (2), a member beside another one (3).
void fuzzFurtherHost(int stage, std::span<const uint8_t> data) {
  const MemberInfo members[] = {member(0), member(1), member(2)};
  const Departure gone[] = {{.rank = 2, .left = true}};
  SessionDirectory directory(
      Welcome{1, 2, "host"},
      [&](uint64_t) {
        return std::optional(Testimony{{kSecret}, members, gone});
      },
      [](uint64_t, const Departure&) {});
  LastFrame port;
  LastFrame otherPort;
  HostDialogue dialogue(directory, port, kNonce);
  HostDialogue other(directory, otherPort, kNonce);
  if (stage >= 1) feedFrame(dialogue, encode(Hello{kWireVersion, kSession, kNonce}));
  if (stage >= 3) {
    feedFrame(other, encode(Hello{kWireVersion, kSession, kNonce}));
    feedFrame(other, joinAnswering(otherPort, 1, 3));
    feedFrame(other, encodeExchange(7, "name", data.first(std::min<size_t>(data.size(), 16))));
  }
  if (stage >= 2) feedFrame(dialogue, joinAnswering(port, 0, 3));
  converse(dialogue, data);
}

// Somebody who is called: before (0) and after (1) he has answered as he should.
void fuzzCall(int stage, std::span<const uint8_t> data) {
  LastFrame port;
  CallDialogue dialogue(port, kSession, kSecret, 2, kNonce);
  dialogue.open();
  if (stage >= 1) {
    feedFrame(dialogue,
              encode(Challenge{kNonce, proofOf(kSecret, kHostLabel, kSession, kNonce, kNonce, {})}));
  }
  converse(dialogue, data);
}

// The member's end: before the challenge (0), before the welcome (1), before the table (2), joined (3),
// and its end with a further host (4).
void fuzzMember(int stage, std::span<const uint8_t> data) {
  constexpr int kRanks = 2;
  Meeting where;
  where.session = kSession;
  where.secret = kSecret;
  const auto link = std::make_shared<ClientLink>(
      where, member(0), kRanks, nullptr, [](const PeerLoss&) noexcept {},
      [](int, std::span<const uint8_t>) {});
  LastFrame port;
  Heard heard;
  MemberDialogue dialogue(link, port, heard, kNonce);
  dialogue.open();
  if (stage >= 1) {
    feedFrame(dialogue,
              encode(Challenge{kNonce, proofOf(kSecret, kHostLabel, kSession, kNonce, kNonce, {})}));
  }
  if (stage >= 2) feedFrame(dialogue, encode(Welcome{1, 2, "host"}));
  if (stage >= 3) {
    const MemberInfo members[kRanks] = {member(0), member(1)};
    feedFrame(dialogue, encodeTable(members));
  }
  const Result<uint32_t> sequence = stage >= 3 ? link->beginExchange("name") : Result<uint32_t>(0u);
  if (stage == 4) {
    LastFrame furtherPort;
    MemberDialogue further(link, furtherPort, heard, kNonce, 2);
    further.open();
    feedFrame(further, encode(Challenge{kNonce, proofOf(kSecret, kHostLabel, kSession, kNonce, kNonce, {})}));
    converse(further, data);
  }
  converse(dialogue, data);
  if (stage >= 3 && sequence.ok()) static_cast<void>(link->exchangeOutcome("name", sequence.value()));
}

void fuzzId(std::span<const uint8_t> data) {
  UniqueId id;
  std::memcpy(id.bytes, data.data(), std::min(data.size(), sizeof id.bytes));
  static_cast<void>(decodeId(id));
  static_cast<void>(decodeId(deriveId(id, loopbackAddress(1), data.size())));
}

}  // namespace
}  // namespace stretto::bootstrap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace stretto::bootstrap;
  if (size == 0) return 0;
  const std::span<const uint8_t> data(bytes + 1, size - 1);
  const int choice = bytes[0] % 16;
  if (choice < 4) {
    fuzzHost(choice, data);
  } else if (choice < 8) {
    fuzzMember(choice - 4, data);
  } else if (choice > 13) {
    fuzzCall(choice - 14, data);
  } else if (choice > 9) {
    fuzzFurtherHost(choice - 10, data);
  } else if (choice == 9) {
    fuzzMember(4, data);
  } else {
    fuzzId(data);
  }
  return 0;
}
