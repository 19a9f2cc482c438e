// Sessions whose connections are encrypted.
#include <optional>
#include <thread>

#include "base/scoped_variable.hpp"
#include "bootstrap/ranks.hpp"
#include "bootstrap/service.hpp"
#include "bootstrap/stranger.hpp"
#include "harness/encrypted.hpp"
#include "harness/relay.hpp"
#include "harness/watchdog.hpp"
#include "platform/encryption.hpp"

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
      EXPECT_EQ(bytesOf(all.value()[1]), bytesOf(text));
    });
    return relay.heard();
  }

  // As ncclSetEncryption does it, until the test ends.
  struct Chosen {
    explicit Chosen(const char* secret) { chooseEncryption(secret); }
    ~Chosen() { chooseEncryption(std::nullopt); }
    Chosen(const Chosen&) = delete;
    Chosen& operator=(const Chosen&) = delete;
  };

  static std::optional<FrameType> answerToPlainHello(const UniqueId& id) {
    Stranger stranger(id);
    stranger.send(encode(Hello{kWireVersion, stranger.where().session, {}}));
    const auto answer = stranger.receive();
    return answer ? std::optional(answer->type) : std::nullopt;
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

// What is said before any proof tells nothing of who says it.
TEST_F(Encrypted, WhoHasProvedNothingHearsNoNames) {
  const ScopedVariable on("STRETTO_TLS", "1");
  Stranger stranger(open());
  stranger.send(encode(Hello{kWireVersion, stranger.where().session, {}}));
  const auto answer = stranger.receive();
  Refusal refusal;
  ASSERT_TRUE(answer && answer->type == FrameType::kRefused && decode(answer->payload, refusal));
  EXPECT_EQ(refusal.text.find("pid"), std::string::npos) << refusal.text;
}

// What the process is told later is for later sessions.
TEST_F(Encrypted, ASessionStaysAsItWasMade) {
  const Chosen chosen("");
  const UniqueId encrypted = open();
  chooseEncryption(std::nullopt);
  const UniqueId plain = open();
  EXPECT_EQ(answerToPlainHello(encrypted), FrameType::kRefused);
  EXPECT_EQ(answerToPlainHello(plain), FrameType::kChallenge);
  chooseEncryption("");
  EXPECT_EQ(answerToPlainHello(encrypted), FrameType::kRefused);
  EXPECT_EQ(answerToPlainHello(plain), FrameType::kChallenge);
}

// A rank that tries again does it as it began.
TEST_F(Encrypted, RetriesStayEncrypted) {
  const std::string secret = "a key to somewhere else, for example";
  const Chosen chosen("");
  open();  // somebody listens all the time
  const UniqueId id = newId();
  Service::closeSession(id);
  Rendezvous where = decodeId(id).value();
  Relay relay(where.address);
  where.address = relay.address();
  std::thread rank([&] {
    const auto member = Membership::join(encodeId(where), 0, 1, 60);
    ASSERT_TRUE(member.ok()) << lastError();
    EXPECT_TRUE(member.value()->exchange("texts", bytesOf(secret), 60).ok()) << lastError();
  });
  while (relay.heard().empty()) std::this_thread::yield();  // it was told that there is no session yet
  chooseEncryption(std::nullopt);
  const size_t before = relay.connections();
  while (relay.connections() < before + 2) std::this_thread::yield();
  chooseEncryption("");
  EXPECT_TRUE(Service::openSession(id).ok()) << lastError();
  chooseEncryption(std::nullopt);
  rank.join();
  EXPECT_FALSE(contains(relay.heard(), secret.substr(0, 8)));
}

// Whoever waits for a rank with another secret hears why it does not come.
TEST_F(Encrypted, WhoWaitsHearsOfAnotherSecret) {
  const Chosen chosen("one");
  const UniqueId id = newId();
  chooseEncryption("another");
  EXPECT_EQ(Membership::join(id, 1, 2, 60).status().code, Code::kRemote);
  EXPECT_NE(lastError().find("the same secret"), std::string::npos) << lastError();
  chooseEncryption("one");
  EXPECT_EQ(Membership::join(id, 0, 2, 2).status().code, Code::kTimeout);
  EXPECT_NE(lastError().find("turned away: a connection could not be encrypted"), std::string::npos)
      << lastError();
  EXPECT_NE(lastError().find("the same secret"), std::string::npos) << lastError();
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
