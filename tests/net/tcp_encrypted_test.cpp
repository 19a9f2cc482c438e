// net/tcp with encryption: what every net must do is in every_net_test.cpp; this is what somebody on the way
// sees and can do, and what becomes of ends that do not agree.
#include <gtest/gtest.h>

#include <cstring>

#include "base/scoped_variable.hpp"
#include "harness/encrypted.hpp"
#include "harness/watchdog.hpp"
#include "net/nets.hpp"
#include "net/open.hpp"
#include "net/relay.hpp"

namespace stretto::net::testing {
namespace {

using stretto::testing::contains;
using stretto::testing::ScopedVariable;

class TcpEncrypted : public ::testing::Test {
 protected:
  void SetUp() override { STRETTO_NEEDS_OPENSSL(); }

  stretto::testing::Watchdog watchdog_{"a test of net/tcp with encryption", 4 * kPatience};
};

const std::string kSecret = "nobody on the way may read this: ";

// Sends messages of many sizes that are all of that text, and compares them.
void sendSecrets(Pair& pair) {
  ASSERT_TRUE(pair.whole());
  for (const size_t bytes : {40, 3000, 20'000, 200'000}) {
    std::string from, to(bytes, 0);
    while (from.size() < bytes) from += kSecret;
    Request *sending = nullptr, *receiving = nullptr;
    const Receive receive{reinterpret_cast<std::byte*>(to.data()), bytes, 7, nullptr};
    ASSERT_TRUE(pair.receiver->receive(&receive, 1, receiving).ok());
    ASSERT_TRUE(
        pair.sender->send(reinterpret_cast<std::byte*>(from.data()), bytes, 7, nullptr, sending).ok());
    ASSERT_TRUE(bothDone(pair, sending, receiving)) << lastError();
    EXPECT_EQ(to, from.substr(0, bytes));
  }
}

TEST_F(TcpEncrypted, NothingOfAMessageIsOnTheWay) {
  for (const auto& settings : {oneFlow(), manyFlows(3), withHelpers(2)}) {
    Relayed plain(settings);
    sendSecrets(plain.pair);
    EXPECT_TRUE(contains(plain.relay->heard(), kSecret)) << "this test sees nothing";
    Relayed relayed(encrypted(settings));
    sendSecrets(relayed.pair);
    const std::vector<uint8_t> heard = relayed.relay->heard();
    EXPECT_GT(heard.size(), 200'000u);
    EXPECT_FALSE(contains(heard, kSecret.substr(0, 8)));
    const auto where = decoded(relayed.pair.listener->handle());
    EXPECT_FALSE(contains(heard, {reinterpret_cast<const char*>(where.key.data()), where.key.size()}));
  }
}

TEST_F(TcpEncrypted, WhatIsChangedOnTheWayEndsTheConnection) {
  Relayed relayed(encrypted(oneFlow()));
  expectAllArrives(relayed.pair, trafficOf({100}));
  relayed.relay->spoil();
  std::vector<std::byte> from(100), to(100);
  Request *sending = nullptr, *receiving = nullptr;
  const Receive receive{to.data(), to.size(), 7, nullptr};
  ASSERT_TRUE(relayed.pair.receiver->receive(&receive, 1, receiving).ok());
  ASSERT_TRUE(relayed.pair.sender->send(from.data(), from.size(), 7, nullptr, sending).ok());
  bool done = false;
  Status status;
  EXPECT_TRUE(eventually([&] {
    status = relayed.pair.receiver->test(receiving, done, nullptr);
    return done || !status.ok();
  }));
  EXPECT_FALSE(done);
  EXPECT_EQ(status.code, Code::kRemote);
  EXPECT_NE(lastError().find("not encrypted by the other end"), std::string::npos) << lastError();
}

// One of several flows breaks, or somebody changes what goes over it: the others carry what it carried.
TEST_F(TcpEncrypted, OfSeveralFlowsTheOthersGoOn) {
  for (const bool isCut : {true, false}) {
    for (const auto& settings : {manyFlows(4), withHelpers(4)}) {
      Relayed relayed(encrypted(settings));
      ASSERT_TRUE(relayed.pair.whole());
      const Traffic traffic = trafficOf(std::vector<size_t>(60, 150'000));
      Exchange exchange(relayed.pair, traffic);
      bool done = false;
      const auto disturb = [&](size_t received) {
        if (done || received < 20) return;
        done = true;
        isCut ? relayed.relay->cut(2) : relayed.relay->spoil();
      };
      EXPECT_TRUE(exchange.run(disturb).ok()) << lastError();
      EXPECT_EQ(exchange.wrong(), 0u);
      EXPECT_TRUE(done);
    }
  }
}

// A connection between two nets that do not fit: what connect and accept say, empty as long as nothing.
struct Refused {
  Refused(const tcp::Settings& from, const tcp::Settings& to, bool both = true) {
    const auto sends = tcp::open(from), receives = tcp::open(to);
    auto listener = receives->listen(0);
    EXPECT_TRUE(listener.ok());
    Relay relay(listener.value()->handle());
    auto attempt = sends->connect(0, relay.handle());
    EXPECT_TRUE(attempt.ok());
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
    EXPECT_TRUE(eventually([&] {
      if (connect.empty() && !attempt.value()->poll(sender).ok()) connect = lastError();
      if (accept.empty() && !listener.value()->accept(receiver).ok()) accept = lastError();
      return !connect.empty() && (!both || !accept.empty());
    }));
    EXPECT_EQ(sender, nullptr);
    EXPECT_EQ(receiver, nullptr);
  }
  std::string connect;
  std::string accept;
};

TEST_F(TcpEncrypted, WhoEncryptsAndWhoDoesNotAreBothToldSo) {
  const Refused fromPlain(oneFlow(), encrypted(oneFlow()));
  EXPECT_NE(fromPlain.connect.find("it encrypts, and this process sends plain text"), std::string::npos)
      << fromPlain.connect;
  EXPECT_NE(fromPlain.accept.find("it sends plain text, and this process encrypts"), std::string::npos)
      << fromPlain.accept;
  const Refused toPlain(encrypted(oneFlow()), oneFlow());
  EXPECT_NE(toPlain.connect.find("it sends plain text, and this process encrypts"), std::string::npos)
      << toPlain.connect;
  EXPECT_NE(toPlain.accept.find("STRETTO_TLS=1"), std::string::npos) << toPlain.accept;
}

TEST_F(TcpEncrypted, AnotherSecretOfTheProgramsIsRefused) {
  tcp::Settings from = encrypted(oneFlow()), to = from;
  from.encryption.secret = "one";
  to.encryption.secret = "another";
  from.attempts = 0.2;
  const Refused refused(from, to, false);
  EXPECT_NE(refused.connect.find("another secret"), std::string::npos) << refused.connect;
  to.encryption.secret = from.encryption.secret;
  const auto sends = tcp::open(from), receives = tcp::open(to);
  Pair pair = join(*sends, *receives);
  expectAllArrives(pair, trafficOf({100, 100'000}));
}

TEST_F(TcpEncrypted, PluginsOfOthersAreNotUsed) {
  const ScopedVariable on("STRETTO_TLS", "1");
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "lo");
  const auto own = net::open();
  ASSERT_TRUE(own.ok()) << lastError();
  EXPECT_STREQ(own.value()->name(), "tcp");
  const ScopedVariable plugin("NCCL_NET_PLUGIN", FAKE_NET);
  const auto theirs = net::open();
  EXPECT_EQ(theirs.status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("NCCL_NET_PLUGIN"), std::string::npos) << lastError();
}

}  // namespace
}  // namespace stretto::net::testing
