// Sessions whose connections are encrypted.
#include "harness/encrypted.hpp"
#include "base/scoped_variable.hpp"
#include "bootstrap/ranks.hpp"
#include "bootstrap/stranger.hpp"
#include "harness/relay.hpp"
#include "harness/watchdog.hpp"

namespace stretto::bootstrap {
namespace {

using namespace testing;
using stretto::testing::contains;
using stretto::testing::Relay;
using stretto::testing::ScopedVariable;

class Encrypted : public ::testing::Test {
 protected:
  void SetUp() override { STRETTO_NEEDS_OPENSSL(); }
  void TearDown() override {
    for (const UniqueId& id : ids_) Service::closeSession(id);
  }

  // Of a session that nobody joins, as long as the test lasts.
  UniqueId open() {
    ids_.push_back(newId());
    return ids_.back();
  }

  // Two ranks, one of them through a relay, which exchange a text and leave. What the relay has heard.
  static std::vector<uint8_t> heardOfExchange(const std::string& text) {
    const UniqueId id = newId();
    Rendezvous where = decodeId(id).value();
    Relay relay(where.address);
    where.address = relay.address();
    const UniqueId ids[] = {id, encodeId(where)};
    asThreads(2, [&](int rank) {
      const auto member = Membership::join(ids[rank], rank, 2, 60);
      ASSERT_TRUE(member.ok()) << lastError();
      const auto all = member.value()->exchange("texts", bytesOf(text), 60);
      ASSERT_TRUE(all.ok()) << lastError();
      EXPECT_EQ(all.value()[1], bytesOf(text));
    });
    return relay.heard();
  }

 private:
  std::vector<UniqueId> ids_;
  stretto::testing::Watchdog watchdog_{"a test of encrypted sessions", 120};
};

TEST_F(Encrypted, NothingThatRanksExchangeIsOnTheWay) {
  const std::string secret = "a key to somewhere else, for example";
  EXPECT_TRUE(contains(heardOfExchange(secret), secret)) << "this test sees nothing";
  const ScopedVariable on("STRETTO_TLS", "1");
  const std::vector<uint8_t> heard = heardOfExchange(secret);
  EXPECT_GT(heard.size(), 500u);
  EXPECT_FALSE(contains(heard, secret.substr(0, 8)));
}

TEST_F(Encrypted, WhoSpeaksPlainTextIsToldSo) {
  const ScopedVariable on("STRETTO_TLS", "1");
  Stranger stranger(open());
  stranger.send(encode(Hello{kWireVersion, stranger.where().session, {}}));
  const auto answer = stranger.receive();
  ASSERT_TRUE(answer && answer->type == FrameType::kRefused);
  Refusal refusal;
  ASSERT_TRUE(decode(answer->payload, refusal));
  EXPECT_EQ(refusal.code, Code::kInvalidUsage);
  EXPECT_NE(refusal.text.find("this rank sends plain text"), std::string::npos) << refusal.text;
  EXPECT_NE(refusal.text.find("STRETTO_TLS=1"), std::string::npos) << refusal.text;
}

// What came in plain text must not count as encrypted, however it was cut.
TEST_F(Encrypted, NothingIsTakenBehindTheHelloInPlainText) {
  const ScopedVariable on("STRETTO_TLS", "1");
  for (const size_t more : {1, 7, 8, 30}) {
    Stranger stranger(open());
    Bytes bytes = *encode(Hello{kWireVersion, stranger.where().session, {}, true});
    const Bytes exchange = *encodeExchange(0, "an exchange that nobody made", {});
    bytes.insert(bytes.end(), exchange.begin(), exchange.begin() + static_cast<ptrdiff_t>(more));
    stranger.send(bytes);
    EXPECT_TRUE(stranger.isDropped()) << more;
  }
}

TEST_F(Encrypted, WhoKnowsTheSecretAndJoinsInPlainTextIsDropped) {
  const ScopedVariable on("STRETTO_TLS", "1");
  Stranger stranger(open());
  stranger.send(encode(Hello{kWireVersion, stranger.where().session, {9}, true}));
  const auto answer = stranger.receive();
  ASSERT_TRUE(answer && answer->type == FrameType::kChallenge);
  Challenge challenge;
  ASSERT_TRUE(decode(answer->payload, challenge));
  MemberInfo who;
  who.rank = 0;
  stranger.send(encodeJoin(stranger.where().secret, stranger.where().session, challenge.nonce, {9}, 2, who));
  EXPECT_TRUE(stranger.isDropped());
}

}  // namespace
}  // namespace stretto::bootstrap
