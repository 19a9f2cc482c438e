// Whose event the stamps of GPU kernels are told with.
#include "communicator/profiler/stamps.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace stretto::communicator {
namespace {

struct Told {
  void* parent;
  uint64_t launch;
  int block;
  bool operator==(const Told&) const = default;
};

KernelStamp stampOf(uint64_t launch, int block, int peer = -1, bool isSend = false) {
  KernelStamp stamp;
  stamp.launch = launch;
  stamp.block = block;
  stamp.peer = peer;
  stamp.isSend = isSend;
  return stamp;
}

class Matcher : public ::testing::Test {
 protected:
  // All that there was to tell so far.
  const std::vector<Told>& reported() {
    for (const auto& [parent, stamp, captured] : matcher_.take()) {
      told_.push_back({captured != nullptr ? captured : parent, stamp.launch, stamp.block});
    }
    return told_;
  }

  int events_[4] = {};
  StampMatcher matcher_;

 private:
  std::vector<Told> told_;
};

// What a send or receive says of its channels is what stamps can come of.
TEST(Channels, OfAQueueAreThoseOfItsBlocksThatLeaveStamps) {
  using executors::cuda::Engine;
  static_assert(Engine::kMostStamps == 32);
  EXPECT_EQ(Engine::channelsOfQueue(0, 1), 1);
  EXPECT_EQ(Engine::channelsOfQueue(1, 1), 1);
  EXPECT_EQ(Engine::channelsOfQueue(0, 20), 20);
  EXPECT_EQ(Engine::channelsOfQueue(1, 20), 12);
  EXPECT_EQ(Engine::channelsOfQueue(2, 20), 0);
  EXPECT_EQ(Engine::channelsOfQueue(0, 64), 32);
  EXPECT_EQ(Engine::channelsOfQueue(1, 64), 0);
  EXPECT_EQ(Engine::channelsOfQueue(0, 0), 0);
}

TEST_F(Matcher, TellsAnOperationsStampsWithItsEvent) {
  matcher_.expect(7, 2, &events_[0]);
  matcher_.expect(8, 1, &events_[1]);
  matcher_.arrived(stampOf(8, 0), 1);
  matcher_.arrived(stampOf(7, 0), 1);
  matcher_.arrived(stampOf(7, 1), 1);
  const std::vector<Told> expected{{&events_[1], 8, 0}, {&events_[0], 7, 0}, {&events_[0], 7, 1}};
  EXPECT_EQ(reported(), expected);
}

TEST_F(Matcher, HoldsStampsThatComeFirst) {
  matcher_.arrived(stampOf(3, 0), 100);
  EXPECT_TRUE(reported().empty());
  matcher_.expect(3, 1, &events_[0]);
  EXPECT_EQ(reported(), (std::vector<Told>{{&events_[0], 3, 0}}));
  matcher_.giveUpBefore(UINT64_MAX);
  EXPECT_EQ(reported().size(), 1u);
}

TEST_F(Matcher, TellsReplaysWithNoEventOnceItHasWaited) {
  matcher_.expect(3, 1, &events_[0]);
  matcher_.arrived(stampOf(3, 0), 100);
  matcher_.arrived(stampOf(3, 0), 200);
  matcher_.giveUpBefore(200);
  EXPECT_EQ(reported().size(), 1u);
  matcher_.giveUpBefore(201);
  EXPECT_EQ(reported(), (std::vector<Told>{{&events_[0], 3, 0}, {nullptr, 3, 0}}));
}

// A captured launch never runs, and its replays need not wait for anybody.
TEST_F(Matcher, TellsReplaysWithTheCallThatWasCaptured) {
  matcher_.captured(3, &events_[0]);
  matcher_.expect(4, 1, &events_[1]);
  for (int replay = 0; replay < 2; ++replay) matcher_.arrived(stampOf(3, replay), 100);
  matcher_.arrived(stampOf(4, 0), 100);
  const std::vector<Told> expected{{&events_[0], 3, 0}, {&events_[0], 3, 1}, {&events_[1], 4, 0}};
  EXPECT_EQ(reported(), expected);
  for (const auto& one : matcher_.take()) EXPECT_EQ(one.parent, nullptr);
}

TEST_F(Matcher, GivesAQueuesStampToAllItsMessages) {
  matcher_.expect(5, 1, &events_[0], 1, true);
  matcher_.expect(5, 1, &events_[1], 1, true);
  matcher_.expect(5, 1, &events_[2], 1, false);
  matcher_.arrived(stampOf(5, 0, 1, true), 1);
  EXPECT_EQ(reported(), (std::vector<Told>{{&events_[0], 5, 0}, {&events_[1], 5, 0}}));
  matcher_.arrived(stampOf(5, 1, 1, false), 1);
  EXPECT_EQ(reported().back(), (Told{&events_[2], 5, 1}));
}

TEST_F(Matcher, IsBounded) {
  for (uint64_t launch = 1; launch <= 10000; ++launch) matcher_.expect(launch, 1, &events_[0]);
  matcher_.arrived(stampOf(1, 0), 1);
  EXPECT_TRUE(reported().empty());
  for (int i = 0; i < 10000; ++i) matcher_.arrived(stampOf(20000, i), 2);
  EXPECT_GT(reported().size(), 5000u);
}

TEST(Follower, CollectsUntilItsEnd) {
  std::atomic<int> there{0};
  std::atomic<size_t> reported{0};
  {
    StampFollower follower(
        [&](std::span<KernelStamp> room, uint64_t&) {
          size_t taken = 0;
          while (taken < room.size() && there > 0) {
            room[taken] = stampOf(1, static_cast<int>(taken));
            ++taken;
            --there;
          }
          return taken;
        },
        [&](const StampMatcher::Matched&) { ++reported; });
    follower.expect(1, 1000, &there);
    there = 600;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (reported < 600 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(reported, 600u);
    there = 700;
  }
  EXPECT_EQ(reported, 1300u);
}

// A plugin may take its time; a launch that says what it expects does not wait for it.
TEST(Follower, LetsOperationsBeExpectedWhileItTells) {
  std::atomic<int> there{1};
  std::atomic<bool> telling{false}, expected{false}, inTime{false};
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto waitFor = [&](const std::atomic<bool>& flag) {
    while (!flag && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return flag.load();
  };
  StampFollower follower(
      [&](std::span<KernelStamp> room, uint64_t&) {
        room[0] = stampOf(1, 0);
        return there.exchange(0) > 0 ? 1 : 0;
      },
      [&](const StampMatcher::Matched&) {
        telling = true;
        inTime = waitFor(expected);
      });
  follower.expect(1, 1, &there);
  ASSERT_TRUE(waitFor(telling));
  follower.expect(2, 1, &there);
  expected = true;
  EXPECT_TRUE(waitFor(inTime));
}

// Of a graph that still replays.
TEST(Follower, EndsThoughStampsDoNot) {
  std::atomic<size_t> reported = 0;
  {
    StampFollower follower(
        [&](std::span<KernelStamp> room, uint64_t&) {
          for (KernelStamp& stamp : room) stamp = stampOf(1, 0);
          return room.size();
        },
        [&](const StampMatcher::Matched&) { ++reported; });
  }
  EXPECT_GT(reported, 0u);
}

}  // namespace
}  // namespace stretto::communicator
