// What waits on many sockets: whom it tells of, and when it returns.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "harness/watchdog.hpp"
#include "platform/connected_pair.hpp"

namespace stretto {
namespace {

using namespace testing;

class PollerTest : public ::testing::Test {
 protected:
  PollerTest() : made_(Poller::create()) { EXPECT_TRUE(made_.ok()) << lastError(); }
  Poller& poller() { return made_.value(); }
  void add(const FileDescriptor& socket, uint64_t tag, Poller::For what = Poller::For::kReading) {
    EXPECT_TRUE(poller().add(socket, tag, what).ok()) << lastError();
  }

  const Watchdog watchdog_{"a test of the poller", 120};  // the tests have limits of their own
  const Pair pair_ = connected();
  Poller::Event events_[4];

 private:
  Result<Poller> made_;
};

TEST_F(PollerTest, WaitsAsLongAsAsked) {
  add(pair_.server, 1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(poller().wait(events_, 60), 0u);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
}

TEST_F(PollerTest, TellsOfRoomToWriteOnlyWhoAsks) {
  add(pair_.server, 1, Poller::For::kBoth);
  add(pair_.client, 2);
  ASSERT_EQ(poller().wait(events_, 5000), 1u);
  EXPECT_EQ(events_[0].tag, 1u);
  EXPECT_TRUE(events_[0].writable);
  EXPECT_FALSE(events_[0].readable);
  poller().change(pair_.server, 1, Poller::For::kReading);
  EXPECT_EQ(poller().wait(events_, 0), 0u);
}

TEST_F(PollerTest, TellsAgainUntilAllIsReceived) {
  add(pair_.server, 1);
  sendText(pair_.client, "ab");
  for (int round = 0; round < 3; ++round) ASSERT_EQ(poller().wait(events_, 5000), 1u) << round;
  uint8_t bytes[16];
  while (receiveSome(pair_.server, bytes).outcome == IoOutcome::kSome) {
  }
  EXPECT_EQ(poller().wait(events_, 0), 0u);
}

TEST_F(PollerTest, GoesOnWithWhoWasPaused) {
  add(pair_.server, 1);
  sendText(pair_.client, "ab");
  ASSERT_EQ(poller().wait(events_, 5000), 1u);
  poller().change(pair_.server, 1, Poller::For::kNothing);
  EXPECT_EQ(poller().wait(events_, 0), 0u);
  poller().change(pair_.server, 1, Poller::For::kReading);
  ASSERT_EQ(poller().wait(events_, 5000), 1u);
  EXPECT_TRUE(events_[0].readable);
}

TEST_F(PollerTest, ForgetsWhoIsRemoved) {
  const Pair other = connected();
  add(pair_.server, 1);
  add(other.server, 2);
  sendText(pair_.client, "ab");
  sendText(other.client, "ab");
  ASSERT_TRUE(waitReadable(pair_.server));
  ASSERT_TRUE(waitReadable(other.server));
  poller().remove(pair_.server);
  ASSERT_EQ(poller().wait(events_, 5000), 1u);
  EXPECT_EQ(events_[0].tag, 2u);
}

TEST_F(PollerTest, TellsOfTheOtherEndsClose) {
  Pair other = connected();
  add(other.server, 3);
  other.client.reset();
  ASSERT_EQ(poller().wait(events_, 5000), 1u);
  EXPECT_TRUE(events_[0].readable);
  uint8_t byte[1];
  EXPECT_EQ(receiveSome(other.server, byte).outcome, IoOutcome::kClosed);
}

TEST_F(PollerTest, TellsOfAllWhereRoomIsForOne) {
  constexpr uint64_t kSockets = 5;
  std::vector<Pair> pairs;
  for (uint64_t i = 0; i < kSockets; ++i) {
    pairs.push_back(connected());
    add(pairs[i].server, i);
    sendText(pairs[i].client, "ab");
    ASSERT_TRUE(waitReadable(pairs[i].server));
  }
  std::set<uint64_t> told;
  for (uint64_t i = 0; i < 4 * kSockets; ++i) {
    ASSERT_EQ(poller().wait(std::span(events_, 1), 5000), 1u);
    told.insert(events_[0].tag);
  }
  EXPECT_EQ(told.size(), kSockets);
}

TEST_F(PollerTest, IsWokenWhileItWaits) {
  add(pair_.server, 1);
  const auto start = std::chrono::steady_clock::now();
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    poller().wake();
  });
  EXPECT_EQ(poller().wait(events_, 20000), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  waker.join();
}

// As threads post what another one is to do: who finds nothing there wakes it, and nobody else does.
TEST_F(PollerTest, OfSeveralThatWakeItNoneIsLost) {
  constexpr int kThreads = 3, kRounds = 2000;
  std::mutex mutex;
  int posted = 0, waiting = 0;
  std::atomic<int> done{0};
  std::atomic<bool> lost{false};
  const auto post = [&] {
    bool first;
    int mine;
    {
      const std::lock_guard lock(mutex);
      first = waiting++ == 0;
      mine = ++posted;
    }
    if (first) poller().wake();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(8);
    while (done < mine && !lost) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > limit) lost = true;
    }
  };
  std::vector<std::thread> posters;
  for (int i = 0; i < kThreads; ++i) {
    posters.emplace_back([&] {
      for (int round = 0; round < kRounds && !lost; ++round) post();
    });
  }
  while (done < kThreads * kRounds && !lost) {
    EXPECT_EQ(poller().wait(events_, 10000), 0u);
    const std::lock_guard lock(mutex);
    waiting = 0;
    done = posted;
  }
  for (std::thread& poster : posters) poster.join();
  EXPECT_FALSE(lost);
}

TEST_F(PollerTest, OneThatWasWokenBeforeReturnsAtOnceAndThenWaits) {
  poller().wake();
  poller().wake();
  EXPECT_EQ(poller().wait(events_, 20000), 0u);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(poller().wait(events_, 60), 0u);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
}

}  // namespace
}  // namespace stretto
