// What is with a helper thread of net/tcp when its connection ends, or its process forks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "harness/child.hpp"
#include "harness/encrypted.hpp"
#include "harness/ranks.hpp"
#include "harness/share.hpp"
#include "harness/watchdog.hpp"
#include "net/drive.hpp"
#include "net/nets.hpp"
#include "net/tcp/helpers.hpp"
#include "platform/connected_pair.hpp"

namespace stretto::net::testing {
namespace {

using stretto::testing::isShortened;
using stretto::testing::Watchdog;

// A connection over helpers of which a large message is half received: both ends' memory is with helpers.
struct HalfReceived {
  explicit HalfReceived(Net& net) : pair(join(net, net)), from(patternOf(3, 8 << 20)), to(from.size()) {
    const Receive receive{to.data(), to.size(), 7, nullptr};
    EXPECT_TRUE(pair.whole());
    EXPECT_TRUE(pair.receiver->receive(&receive, 1, receiving).ok());
    EXPECT_TRUE(pair.sender->send(from.data(), from.size(), 7, nullptr, sending).ok());
    EXPECT_TRUE(eventually([&] {
      bool done = false;
      EXPECT_TRUE(pair.receiver->test(receiving, done, nullptr).ok());
      EXPECT_TRUE(pair.sender->test(sending, done).ok());
      uint64_t bytes = 0;
      for (const FlowCounters& flow : pair.receiver->flows()) bytes += flow.bytes;
      return bytes > from.size() / 4;
    }));
  }
  Pair pair;
  std::vector<std::byte> from;
  std::vector<std::byte> to;
  Request* sending = nullptr;
  Request* receiving = nullptr;
};

TEST(TcpHelpers, WriteNothingOnceTheirConnectionIsClosed) {
  const Watchdog watchdog("a test of net/tcp's helpers", kPatience);
  const auto net = tcp::open(withHelpers(4));
  const int rounds = isShortened() ? 5 : 20;
  for (int round = 0; round < rounds; ++round) {
    HalfReceived half(*net);
    half.pair.receiver.reset();
    std::fill(half.to.begin(), half.to.end(), std::byte{0x5a});
    bool done = false;
    for (int i = 0; i < 100 && half.pair.sender->test(half.sending, done).ok(); ++i) continue;
    half.pair.sender.reset();
    EXPECT_TRUE(
        std::all_of(half.to.begin(), half.to.end(), [](std::byte one) { return one == std::byte{0x5a}; }));
  }
}

// Who is told that its last receive is done may close: the sender hears that its message has come all the
// same. The pauses let helpers fall asleep.
TEST(TcpHelpers, TellTheSenderThoughTheReceiverClosesAtOnce) {
  const Watchdog watchdog("a test of net/tcp's helpers", kPatience);
  const auto net = tcp::open(withHelpers(4));
  for (int round = 0; round < 60; ++round) {
    Pair pair = join(*net, *net);
    ASSERT_TRUE(pair.whole());
    const std::vector<std::byte> from =
        patternOf(3, round % 2 == 0 ? 3'000 : 200'000);  // whole, and in parts
    std::vector<std::byte> to(from.size());
    Request *sending = nullptr, *receiving = nullptr;
    const Receive receive{to.data(), to.size(), 7, nullptr};
    ASSERT_TRUE(pair.receiver->receive(&receive, 1, receiving).ok());
    ASSERT_TRUE(pair.sender->send(from.data(), from.size(), 7, nullptr, sending).ok());
    bool sent = false, received = false;
    ASSERT_TRUE(eventually([&] {
      if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_TRUE(sent || pair.sender->test(sending, sent).ok()) << lastError();
      EXPECT_TRUE(pair.receiver->test(receiving, received, nullptr).ok()) << lastError();
      return received;
    }));
    pair.receiver.reset();
    EXPECT_TRUE(eventually([&] { return sent || !pair.sender->test(sending, sent).ok() || sent; }));
    EXPECT_TRUE(sent) << "round " << round << ": " << lastError();
    EXPECT_EQ(from, to);
  }
}

// What a peer has sent meanwhile, which the connection's own thread reads, must not keep a helper awake.
TEST(TcpHelpers, SleepWhileTheKernelTakesNoMore) {
  const Watchdog watchdog("a test of net/tcp's helpers", kPatience);
  auto sockets = stretto::testing::connected();
  const auto helpers = tcp::Helpers::ofProcess(1);
  std::vector<std::byte> bytes(64 << 20);
  const IoSpan piece{bytes.data(), bytes.size()};
  ASSERT_EQ(stretto::testing::sendText(sockets.client, "unread").bytes, 6u);
  tcp::Loan loan;
  ByteStream server(std::move(sockets.server));
  ASSERT_TRUE(helpers->lend(loan, 0, tcp::Direction::kSend, server, {&piece, 1}, bytes.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const clock_t begin = std::clock();  // of all threads of this process
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const double busy = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_FALSE(loan.isBack());
  EXPECT_LT(busy, 0.2);
  EXPECT_GT(loan.recall().bytes, 0u);
}

// A child of fork() has the connection's objects and none of the threads that its flows are lent to.
void forkInTheMiddle(const tcp::Settings& settings) {
  const Watchdog watchdog("a test of net/tcp's helpers", kPatience);
  const auto net = tcp::open(settings);
  HalfReceived half(*net);
  for (const bool endsFirst : {true, false}) {
    EXPECT_EQ(stretto::testing::inChild([&] {
                if (endsFirst) half.pair = {};
                const auto fresh = tcp::open(settings);
                Pair own = join(*fresh, *fresh);
                const Traffic traffic = trafficOf({100, 300'000, 20'000, 1'000'000});
                if (!own.whole() || !Exchange(own, traffic).run().ok()) return 1;
                bool done = false;  // what was begun in the parent is over here, and said to be
                if (!endsFirst && half.pair.sender->test(half.sending, done).ok() && !done) return 2;
                half.pair = {};
                return Exchange(own, traffic).run().ok() ? 0 : 3;
              }),
              0);
  }
  EXPECT_TRUE(bothDone(half.pair, half.sending, half.receiving));
  EXPECT_EQ(half.from, half.to);
}

TEST(TcpHelpers, AForkedChildWaitsForNone) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  forkInTheMiddle(withHelpers(4));
}

TEST(TcpHelpers, AForkedChildLeavesEncryptedConnectionsAlone) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  STRETTO_NEEDS_OPENSSL();
  forkInTheMiddle(encrypted(withHelpers(4)));
}

}  // namespace
}  // namespace stretto::net::testing
