// Messages survive the wire, and nothing but a whole message is taken for one.
#include "bootstrap/wire.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace stretto::bootstrap {
namespace {

std::span<const uint8_t> payloadOf(const SharedBytes& frame) {
  return std::span(*frame).subspan(8);
}

MemberInfo memberInFull(int rank) {
  MemberInfo who;
  who.rank = rank;
  who.pid = 77;
  who.process = 0x1122334455667788;
  who.host = "node-" + std::to_string(rank);
  who.version = "0.1.0";
  who.service = loopbackAddress(static_cast<uint16_t>(1000 + rank));
  return who;
}

// Every shorter or longer payload must be refused; the whole one is what `check` looks at.
template <typename Message>
Message roundTrip(const SharedBytes& frame) {
  const std::span<const uint8_t> payload = payloadOf(frame);
  Message message;
  for (size_t length = 0; length < payload.size(); ++length) {
    Message ignored;
    EXPECT_FALSE(decode(payload.first(length), ignored)) << length << " of " << payload.size();
  }
  Bytes longer(payload.begin(), payload.end());
  longer.push_back(0);
  Message ignored;
  EXPECT_FALSE(decode(longer, ignored));
  EXPECT_TRUE(decode(payload, message));
  EXPECT_LE(static_cast<int64_t>(payload.size()), longestPayload(static_cast<FrameType>((*frame)[4])));
  return message;
}

// Whoever speaks another version is to be told so: how long its Hello is cannot be known.
TEST(Wire, OfAHelloOfAnotherVersionOnlyTheVersionIsRead) {
  const uint16_t other = kWireVersion - 1;
  for (const size_t length : {size_t{2}, size_t{26}, kMaxHelloBytes}) {
    Bytes payload(length, 0xff);
    std::memcpy(payload.data(), &other, sizeof other);
    Hello hello;
    EXPECT_TRUE(decode(payload, hello)) << length;
    EXPECT_EQ(hello.wireVersion, other);
    payload[0] = kWireVersion;
    EXPECT_FALSE(decode(payload, hello)) << length;
  }
  Hello hello;
  EXPECT_FALSE(decode(Bytes{1}, hello));
}

TEST(Wire, MessagesComeBack) {
  EXPECT_EQ(roundTrip<Hello>(encode(Hello{kWireVersion, 5, {1, 2}})).nonce[1], 2);
  EXPECT_TRUE(roundTrip<Hello>(encode(Hello{kWireVersion, 5, {1, 2}, true})).encrypted);
  EXPECT_EQ(roundTrip<Challenge>(encode(Challenge{{4}, {6}})).proof[0], 6);
  const auto refusal = roundTrip<Refusal>(encode(Refusal{Code::kTimeout, 12, "why"}));
  EXPECT_TRUE(refusal.code == Code::kTimeout && refusal.peer == 12 && refusal.text == "why");
  EXPECT_EQ(roundTrip<Welcome>(encode(Welcome{1, 2, "host"})).host, "host");
  EXPECT_EQ(roundTrip<Missing>(encode(Missing{1, 2, "rank 1"})).text, "rank 1");
  EXPECT_EQ(roundTrip<Goodbye>(encode(Goodbye{Farewell::kAborted, ""})).kind, Farewell::kAborted);
  EXPECT_EQ(roundTrip<Goodbye>(encode(Goodbye{Farewell::kDisagreed, ""})).kind, Farewell::kDisagreed);
  EXPECT_EQ(roundTrip<Lost>(encode(Lost{3, LossKind::kExited, 9, "h", "t"})).pid, 9u);
  EXPECT_EQ(roundTrip<Lost>(encode(Lost{3, LossKind::kDisagreed, 9, "h", "t"})).kind, LossKind::kDisagreed);
  EXPECT_EQ(roundTrip<ExchangeFailure>(encode(ExchangeFailure{8, {Code::kRemote, -1, "x"}})).sequence, 8u);
  const SharedBytes join = encodeJoin({}, 1, {2}, {3}, 4, memberInFull(1));
  EXPECT_EQ(roundTrip<Join>(join).who.service, loopbackAddress(1001));
  EXPECT_TRUE(provesSecret(payloadOf(join), {}, 1, {2}, {3}));
  EXPECT_FALSE(provesSecret(payloadOf(join), {1}, 1, {2}, {3}));
  EXPECT_FALSE(provesSecret(payloadOf(join), {}, 2, {2}, {3}));
  EXPECT_FALSE(provesSecret(payloadOf(join), {}, 1, {2}, {4}));
  EXPECT_FALSE(provesSecret(payloadOf(join).first(10), {}, 1, {2}, {3}));
}

TEST(Wire, TablesAndResultsComeBack) {
  const MemberInfo members[] = {memberInFull(0), memberInFull(1), memberInFull(2)};
  const SharedBytes table = encodeTable(members);
  std::vector<MemberInfo> got;
  ASSERT_TRUE(decodeTable(payloadOf(table), 3, got));
  EXPECT_EQ(got[2].host, "node-2");
  EXPECT_FALSE(decodeTable(payloadOf(table), 2, got));
  EXPECT_FALSE(decodeTable(payloadOf(table), 4, got));
  const MemberInfo disordered[] = {memberInFull(1), memberInFull(0)};
  EXPECT_FALSE(decodeTable(payloadOf(encodeTable(disordered)), 2, got));

  const Bytes blobs[] = {{1, 2, 3}, {}, {4}};
  const SharedBytes result = encodeExchangeResult(6, blobs);
  const auto copyOf = [](std::span<const uint8_t> bytes) {
    return std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  };
  uint32_t sequence = 0;
  Contributions parts;
  ASSERT_TRUE(decodeExchangeResult(copyOf(payloadOf(result)), 3, sequence, parts));
  EXPECT_EQ(sequence, 6u);
  const Contributions back = parts;  // the bytes are still there when what they came in is gone
  for (size_t length = 0; length < payloadOf(result).size(); ++length) {
    EXPECT_FALSE(decodeExchangeResult(copyOf(payloadOf(result).first(length)), 3, sequence, parts)) << length;
  }
  EXPECT_FALSE(decodeExchangeResult(copyOf(payloadOf(result)), 2, sequence, parts));
  ASSERT_EQ(back.size(), std::size(blobs));
  for (size_t rank = 0; rank < back.size(); ++rank) {
    EXPECT_EQ(Bytes(back[rank].begin(), back[rank].end()), blobs[rank]);
  }
}

TEST(Wire, TheLongestMessagesFitTheirLimits) {
  const std::string text(5000, 'x');
  MemberInfo who = memberInFull(0);
  who.host = text;
  who.version = text;
  for (const SharedBytes& frame :
       {encode(Refusal{Code::kTimeout, 1, text}), encode(Welcome{1, 2, text}), encode(Missing{1, 2, text}),
        encode(Goodbye{Farewell::kGaveUp, text}), encode(Lost{1, LossKind::kDied, 2, text, text}),
        encode(ExchangeFailure{1, {Code::kRemote, 1, text}}), encodeJoin({}, 1, {}, {}, 2, who),
        encodeExchange(1, text, Bytes(kMaxBlobBytes))}) {
    EXPECT_EQ(static_cast<int64_t>(frame->size() - 8), longestPayload(static_cast<FrameType>((*frame)[4])));
  }
}

TEST(Wire, CodesAndKindsAreChecked) {
  const SharedBytes frame = encode(Refusal{Code::kTimeout, 1, "x"});
  Bytes bytes(payloadOf(frame).begin(), payloadOf(frame).end());
  Refusal refusal;
  for (const uint8_t code : {0, 1, 9, 255}) {
    bytes[0] = code;
    EXPECT_FALSE(decode(bytes, refusal)) << int{code};
  }
  Bytes goodbye{4, 0, 0};
  Goodbye said;
  EXPECT_FALSE(decode(goodbye, said));
  QueryKind kind;
  EXPECT_FALSE(decodeQuery(Bytes{2}, kind));
}

TEST(Wire, WhatIsPrintedHoldsNoControlCharacters) {
  const auto lost = roundTrip<Lost>(encode(Lost{1, LossKind::kDied, 2, "evil\nhost", "\x1b[31mred"}));
  EXPECT_EQ(lost.host, "evil?host");
  EXPECT_EQ(lost.text, "?[31mred");
}

TEST(Wire, FramesAreFoundWhateverThePieces) {
  Bytes stream;
  for (int i = 0; i < 20; ++i) {
    const SharedBytes frame =
        encodeExchange(static_cast<uint32_t>(i), "name", Bytes(static_cast<size_t>(i * 13)));
    stream.insert(stream.end(), frame->begin(), frame->end());
  }
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{64}, stream.size()}) {
    FrameSplitter splitter;
    uint32_t next = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      const auto data = std::span<const uint8_t>(stream).subspan(at, std::min(piece, stream.size() - at));
      const auto verdict = splitter.feed(
          data, [](FrameType type) { return longestPayload(type); },
          [&](FrameType type, std::span<const uint8_t> payload) {
            Exchange part;
            EXPECT_TRUE(type == FrameType::kExchange && decode(payload, part));
            EXPECT_EQ(part.sequence, next);
            EXPECT_EQ(part.blob.size(), size_t{next} * 13);
            ++next;
            return true;
          });
      EXPECT_EQ(verdict, FrameSplitter::Verdict::kGoOn);
    }
    EXPECT_EQ(next, 20u) << piece;
  }
}

}  // namespace
}  // namespace stretto::bootstrap
