// Clients that do not belong, or do not behave: they are dropped, told nothing, and disturb nobody.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/log.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/ranks.hpp"
#include "bootstrap/stranger.hpp"
#include "harness/watchdog.hpp"

namespace stretto::bootstrap {
namespace {

using namespace testing;
using stretto::testing::Watchdog;

// A session under attack: at its end a real rendezvous must still succeed, over the same session.
class Hostile : public ::testing::Test {
 protected:
  void TearDown() override {
    asThreads(3, [&](int rank) {
      const auto made = Membership::join(id_, rank, 3, 20);
      ASSERT_TRUE(made.ok()) << lastError();
      EXPECT_TRUE(made.value()->exchange("after all", {}, 20).ok()) << lastError();
    });
  }

  const Watchdog watchdog_{"hostile clients", 60};
  const UniqueId id_ = newId();
};

std::vector<uint8_t> header(uint32_t length, uint16_t type, uint16_t mark = 0x7453) {
  std::vector<uint8_t> bytes(8);
  std::memcpy(bytes.data(), &length, 4);
  std::memcpy(bytes.data() + 4, &type, 2);
  std::memcpy(bytes.data() + 6, &mark, 2);
  return bytes;
}

TEST_F(Hostile, GarbageIsDropped) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Stranger stranger(id_);
    std::vector<uint8_t> bytes(1 + random() % 5000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    stranger.send(bytes);
    EXPECT_TRUE(bytes.size() < 8 || stranger.isDropped()) << round;
  }
}

TEST_F(Hostile, ABrowserIsDropped) {
  Stranger stranger(id_);
  stranger.send(bytesOf("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_TRUE(stranger.isDropped());
}

TEST_F(Hostile, OversizedFramesAreDroppedAtTheirHeader) {
  for (const uint16_t type : {1, 5, 8, 9, 13}) {
    for (const uint32_t length : {0xffffffffu, 0x7fffffffu, 1u << 20, 600u}) {
      Stranger stranger(id_);
      stranger.send(header(length, type));
      EXPECT_TRUE(stranger.isDropped()) << type << " " << length;
    }
  }
}

TEST_F(Hostile, MessagesOfMembersAreNotForStrangers) {
  for (const SharedBytes& frame :
       {encodeExchange(0, "hello", {}), encodeQuery(QueryKind::kJoin), encode(Goodbye{}), encode(Left{}),
        encodeEmpty(FrameType::kHostLeaving), encodeEmpty(FrameType::kNudge), encode(Welcome{})}) {
    Stranger stranger(id_);
    stranger.send(frame);
    EXPECT_TRUE(stranger.isDropped());
  }
}

TEST_F(Hostile, TruncatedMessagesAreForgotten) {
  const SharedBytes hello = encode(Hello{kWireVersion, decodeId(id_).value().session, {}});
  for (size_t length = 0; length < hello->size(); ++length) {
    Stranger stranger(id_);
    stranger.send(std::span(*hello).first(length));
    if (length % 2 == 0) stranger.reset();
  }
}

TEST_F(Hostile, BytesOneByOneAreUnderstood) {
  Stranger stranger(id_);
  const SharedBytes hello = encode(Hello{kWireVersion, stranger.where().session, {}});
  for (const uint8_t& byte : *hello) stranger.send(std::span(&byte, 1));
  const auto answer = stranger.receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, FrameType::kChallenge);
}

TEST_F(Hostile, AWrongProofIsDroppedWithoutAWord) {
  Stranger stranger(id_);
  Bytes join = *stranger.greet(0, 3);
  for (const size_t at : {size_t{8}, size_t{23}, join.size() - 1}) {
    Stranger again(id_);
    Bytes spoiled = *again.greet(0, 3);
    spoiled[at] ^= 1;  // the proof, or what it covers
    again.send(spoiled);
    EXPECT_TRUE(again.isDropped());
    EXPECT_FALSE(again.receive(0).has_value());
  }
  stranger.reset();
}

TEST_F(Hostile, AProofIsGoodForOneConnection) {
  Stranger first(id_);
  const SharedBytes join = first.greet(7, 3);  // recorded by somebody who listens
  Stranger second(id_);
  ASSERT_NE(second.greet(7, 3), nullptr);
  second.send(join);
  EXPECT_TRUE(second.isDropped());
}

// Whatever the length of its hello is.
TEST_F(Hostile, AnotherWireProtocolIsToldBoth) {
  for (const size_t more : {0, 16, 17, 54}) {
    Stranger stranger(id_);
    FrameWriter hello(FrameType::kHello);
    hello.number(uint16_t{99}).number(stranger.where().session).raw(Bytes(more));
    stranger.send(hello.take());
    const auto answer = stranger.receive();
    ASSERT_TRUE(answer.has_value()) << more;
    Refusal refusal;
    ASSERT_TRUE(answer->type == FrameType::kRefused && decode(answer->payload, refusal));
    EXPECT_NE(refusal.text.find("protocol 99"), std::string::npos) << refusal.text;
    EXPECT_NE(refusal.text.find("speaks " + std::to_string(kWireVersion)), std::string::npos) << refusal.text;
    EXPECT_TRUE(stranger.isDropped());
  }
}

TEST_F(Hostile, AnUnknownSessionIsNotThereYet) {
  Stranger stranger(id_);
  stranger.send(encode(Hello{kWireVersion, stranger.where().session + 1, {}}));
  const auto answer = stranger.receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, FrameType::kNotYet);
  EXPECT_TRUE(stranger.isDropped());
}

TEST_F(Hostile, SlowClientsAreDroppedInTime) {
  const auto start = std::chrono::steady_clock::now();
  Stranger silent(id_);
  Stranger halfway(id_);
  ASSERT_NE(halfway.greet(0, 3), nullptr);
  Stranger dripping(id_);
  const SharedBytes hello = encode(Hello{kWireVersion, dripping.where().session, {}});
  size_t sent = 0;
  while (!dripping.isDropped(0.4) && sent < hello->size()) {
    dripping.send(std::span(*hello).subspan(sent++, 1));
  }
  EXPECT_LT(sent, hello->size());
  EXPECT_TRUE(silent.isDropped(2));
  EXPECT_TRUE(halfway.isDropped(2));
  const double seconds = secondsSince(start);
  EXPECT_GT(seconds, 4.5);
  EXPECT_LT(seconds, 8.0);
}

TEST_F(Hostile, TheOldestOfTooManyGoesFirst) {
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<Stranger>(id_));
  for (size_t i = 0; i < 72; ++i) EXPECT_TRUE(crowd[i]->isDropped(5)) << i;
  EXPECT_FALSE(crowd.back()->isDropped(0.05));
  // With the crowd still there, a real rendezvous happens (and another one when it is gone).
  const UniqueId other = newId();
  asThreads(8, [&](int rank) { EXPECT_TRUE(Membership::join(other, rank, 8, 20).ok()) << lastError(); });
}

// A member that knows the secret and then breaks the protocol is a loss with its reason: at once, and when
// the others have begun to look for further hosts of the session, its process among them.
TEST(Misbehaving, AMemberThatBreaksTheProtocolIsLost) {
  const Watchdog watchdog("misbehaving member", 60);
  const std::vector<std::vector<uint8_t>> offences = {
      *encodeExchange(5, "out of turn", {}), *encodeEmpty(FrameType::kHostLeaving),
      bytesOf("no frame at all"), header(0xffffffff, 8), *encode(Hello{})};
  for (size_t i = 0; i < 2 * offences.size(); ++i) {
    const UniqueId id = newId();
    std::atomic<int> lost{-1};
    std::atomic<bool> joined{false};
    std::thread honest([&] {
      JoinOptions options;
      options.onPeerLost = [&](const PeerLoss& loss) { lost = loss.rank; };
      const auto made = Membership::join(id, 0, 2, 20, nullptr, options);
      ASSERT_TRUE(made.ok()) << lastError();
      joined = true;
      EXPECT_EQ(made.value()->exchange("with the offender", {}, 20).status().code, Code::kRemote);
      EXPECT_TRUE(eventually(5, [&] { return lost == 1; }));
    });
    Stranger offender(id);
    offender.send(offender.greet(1, 2));
    EXPECT_TRUE(eventually(5, [&] { return joined.load(); }));
    if (i >= offences.size()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    offender.send(offences[i % offences.size()]);
    EXPECT_TRUE(offender.isDropped());
    honest.join();
  }
}

// Members know the process of the rendezvous as number 0, so that nobody else may have it.
TEST(Misbehaving, AMemberWithoutAProcessIsDropped) {
  const Watchdog watchdog("a member without a process", 60);
  const UniqueId id = newId();
  Stranger stranger(id);
  stranger.send(stranger.greet(0, 1, 0));
  EXPECT_TRUE(stranger.isDropped());
  EXPECT_TRUE(Membership::join(id, 0, 1, 20).ok()) << lastError();
}

TEST(Misbehaving, ANumberOfRanksBeyondReasonIsRefused) {
  const Watchdog watchdog("too many ranks", 60);
  const UniqueId id = newId();
  for (const int ranks : {0, -1, kMaxRanks + 1, 0x7fffffff}) {
    Stranger stranger(id);
    stranger.send(stranger.greet(0, ranks));
    const auto answer = stranger.receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->type, FrameType::kRefused) << ranks;
  }
  for (const int rank : {-1, 2, 0x7fffffff}) {
    Stranger stranger(id);
    stranger.send(stranger.greet(rank, 2));
    const auto answer = stranger.receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->type, FrameType::kRefused) << rank;
  }
  EXPECT_TRUE(Membership::join(id, 0, 1, 20).ok()) << lastError();
}

TEST(Misbehaving, DropsAreLoggedAtALimitedRate) {
  const Watchdog watchdog("log rate", 60);
  // What the tests before this one have sent may have used up the lines of their second.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  ::setenv("NCCL_DEBUG", "INFO", 1);
  log::reset();
  ::testing::internal::CaptureStderr();
  const UniqueId id = newId();
  for (int i = 0; i < 100; ++i) {
    Stranger stranger(id);
    stranger.send(bytesOf("what is this?"));
    EXPECT_TRUE(stranger.isDropped());
  }
  Service::closeSession(id);
  EXPECT_TRUE(eventually(5, [] { return threads() <= (STRETTO_THREAD_SANITIZER ? 3u : 2u); }));
  const std::string text = ::testing::internal::GetCapturedStderr();
  ::unsetenv("NCCL_DEBUG");
  log::reset();
  size_t lines = 0;
  for (size_t at = text.find("dropped a connection"); at != std::string::npos;
       at = text.find("dropped a connection", at + 1)) {
    ++lines;
  }
  EXPECT_GE(lines, 1u);
  EXPECT_LE(lines, 30u) << text;
}

}  // namespace
}  // namespace stretto::bootstrap
