// Which kernels wait for each other without an end, by what ranks have published.
#include "communicator/device/kernel_waits.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "communicator/device/launch_log.hpp"

namespace stretto::communicator {
namespace {

using stretto::cuda::Awaited;
using stretto::cuda::awaitedAt;

constexpr uint64_t bit(int rank) {
  return uint64_t{1} << rank;
}
// One message is sent to a peer, or received from it.
struct Sends {
  int peer;
};
struct Receives {
  int peer;
};
struct WaitsForSignals {};

// Ranks whose kernels say what a test lets them say; every rank looks for a standstill in each turn.
class KernelWaitsTest : public ::testing::Test {
 protected:
  struct Rank {
    KernelWaits published{};
    std::unique_ptr<KernelWaitsOf> owner = std::make_unique<KernelWaitsOf>(published);
    KernelWaitsOf::Looks looks{};
    uint32_t launch = 0;
    WaitingLaunch what;
    bool isKnown = true;
    Standstill standstill;
  };

  explicit KernelWaitsTest(size_t ranks = 3) : ranks_(ranks) {}

  void launchesCollective(size_t rank) {
    ++ranks_[rank].launch;
    ranks_[rank].what.isTransfers = ranks_[rank].what.isOfSignals = false;
    ranks_[rank].what.before = ranks_[rank].what.with;
  }
  void launches(size_t rank, Sends what) {
    launchesCollective(rank);
    ranks_[rank].what.isTransfers = true;
    ++ranks_[rank].what.with.sent[static_cast<size_t>(what.peer)];
  }
  void launches(size_t rank, Receives what) {
    launchesCollective(rank);
    ranks_[rank].what.isTransfers = true;
    ++ranks_[rank].what.with.received[static_cast<size_t>(what.peer)];
  }
  void launches(size_t rank, WaitsForSignals) {
    launchesCollective(rank);
    ranks_[rank].what.isTransfers = ranks_[rank].what.isOfSignals = true;
  }
  void launches(size_t rank, Sends what, Receives andThat) {  // in one group
    launches(rank, what);
    ++ranks_[rank].what.with.received[static_cast<size_t>(andThat.peer)];
  }
  void looks(size_t rank, Awaited what, int peer) {
    ranks_[rank].looks[static_cast<size_t>(awaitedAt(what, peer))] = {ranks_[rank].launch, 4, ++clock_};
  }
  // What each rank finds; 0 for one that does not wait.
  std::vector<uint64_t> turn() {
    std::vector<bool> waits;
    for (Rank& rank : ranks_) {
      waits.push_back(rank.owner->publish(rank.looks, [&](uint32_t launch, WaitingLaunch& found) {
        found = rank.what;
        return rank.isKnown && launch == rank.launch;
      }));
    }
    std::vector<const KernelWaits*> all;
    for (const Rank& rank : ranks_) all.push_back(&rank.published);
    std::vector<uint64_t> found;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto result =
          waits[i] ? ranks_[i].standstill.find(static_cast<int>(i), all, gone_) : Standstill::Found{};
      found.push_back(result.members);
      if (result.gone >= 0) absent_[i] = result.gone;
    }
    return found;
  }
  // Turns of `look`, until rank 0 has found something or 40 have passed.
  template <typename Look>
  uint64_t after40(Look look) {
    for (int i = 0; i < 40; ++i) {
      look();
      if (const uint64_t found = turn()[0]; found != 0) return found;
    }
    return 0;
  }

  std::vector<Rank> ranks_;
  uint64_t gone_ = 0;
  std::array<int, 3> absent_{-1, -1, -1};  // what each rank has found last
  uint16_t clock_ = 0;
};

TEST_F(KernelWaitsTest, ASendThatMeetsACollectiveStandsStill) {
  launches(0, Sends{1});
  launchesCollective(1);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kPeer, 0);
            }),
            bit(0) | bit(1));
}

TEST_F(KernelWaitsTest, AReceiveThatMeetsACollectiveStandsStill) {
  launches(0, Receives{1});
  launchesCollective(1);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kSender, 1);
              looks(1, Awaited::kPeer, 0);
            }),
            bit(0) | bit(1));
}

TEST_F(KernelWaitsTest, TwoSendsInNoGroupStandStill) {
  launches(0, Sends{1});
  launches(1, Sends{0});
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kReceiver, 0);
            }),
            bit(0) | bit(1));
}

TEST_F(KernelWaitsTest, ARingOfSendsStandsStill) {
  for (int rank = 0; rank < 3; ++rank) launches(static_cast<size_t>(rank), Sends{(rank + 1) % 3});
  EXPECT_EQ(after40([&] {
              for (int rank = 0; rank < 3; ++rank) {
                looks(static_cast<size_t>(rank), Awaited::kReceiver, (rank + 1) % 3);
              }
            }),
            bit(0) | bit(1) | bit(2));
}

TEST_F(KernelWaitsTest, WhoAlsoWaitsForAMemberIsNone) {
  launches(0, Sends{1});
  launchesCollective(1);
  launchesCollective(2);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kPeer, 0);
              looks(1, Awaited::kPeer, 2);
              looks(2, Awaited::kPeer, 1);
            }),
            bit(0) | bit(1));
}

// Rank 1 sends what rank 0 would receive next, and would signal then.
TEST_F(KernelWaitsTest, AWaitForASignalThatMeetsAMessageStandsStill) {
  launches(0, WaitsForSignals{});
  launches(1, Sends{0});
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kSender, 1);
              looks(1, Awaited::kReceiver, 0);
            }),
            bit(0) | bit(1));
}

TEST_F(KernelWaitsTest, ARingThroughAWaitForASignalStandsStill) {
  launches(0, WaitsForSignals{});
  launches(1, Receives{2});
  launchesCollective(2);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kSender, 1);
              looks(1, Awaited::kSender, 2);
              looks(2, Awaited::kPeer, 0);
            }),
            bit(0) | bit(1) | bit(2));
}

// Rank 1 waits for rank 2, which computes: then it may come to its signal.
TEST_F(KernelWaitsTest, AWaitForASignalGoesOnWhileItsSenderMayCome) {
  launches(0, WaitsForSignals{});
  launches(1, Receives{2});
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kSender, 1);
              looks(1, Awaited::kSender, 2);
            }),
            0u);
}

TEST_F(KernelWaitsTest, BothEndsOfAMessageGoOn) {
  launches(0, Sends{1});
  launches(1, Receives{0});
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kSender, 0);
            }),
            0u);
}

// Rank 0 has sent one message, which rank 1 has; rank 1 waits for a second one, and rank 0 for rank 1.
TEST_F(KernelWaitsTest, AMessageThatHasComeIsNotTheNextOne) {
  launches(0, Sends{1});
  launches(1, Receives{0});
  launches(1, Receives{0});
  launches(0, Receives{1});
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kSender, 1);
              looks(1, Awaited::kSender, 0);
            }),
            bit(0) | bit(1));
}

// Nobody knows how many messages there were before, but what a launch does not move it does not move.
TEST_F(KernelWaitsTest, WithoutCountsTwoSendsInNoGroupStandStill) {
  launches(0, Sends{1});
  launches(1, Sends{0});
  ranks_[1].what.isCounted = false;
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kReceiver, 0);
            }),
            bit(0) | bit(1));
}

// Rank 0 has received one message; whether it is the one that rank 1 sends just now, only counts could say.
TEST_F(KernelWaitsTest, WithoutCountsAMessageMayBeTheNextOne) {
  launches(0, Receives{1});
  launches(0, Receives{1});
  launches(1, Sends{0}, Receives{0});
  const auto found = [&] {
    return after40([&] {
      looks(0, Awaited::kSender, 1);
      looks(1, Awaited::kSender, 0);
    });
  };
  EXPECT_EQ(found(), bit(0) | bit(1));
  ++ranks_[0].launch;
  ++ranks_[1].launch;
  ranks_[0].what.isCounted = false;
  EXPECT_EQ(found(), 0u);
}

// Rank 0 waits for room for its second message, which rank 1 makes when it receives the first.
TEST_F(KernelWaitsTest, WhoReceivesAnEarlierMessageMakesRoom) {
  launches(0, Sends{1});
  launches(0, Sends{1});
  launches(1, Sends{0}, Receives{0});
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kReceiver, 0);
            }),
            0u);
}

TEST_F(KernelWaitsTest, ACollectiveWaitsForItsLastRank) {
  launchesCollective(0);
  launchesCollective(1);
  launchesCollective(2);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kPeer, 1);
              looks(1, Awaited::kPeer, 0);
              looks(1, Awaited::kPeer, 2);
            }),
            0u);
}

TEST_F(KernelWaitsTest, WhoComputesForLongMayStillCome) {
  launches(0, Sends{1});
  launchesCollective(1);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kPeer, 2);  // which computes, and then lets rank 1 come to its receive
            }),
            0u);
}

// After the first picture rank 1 is seen to look so often, and no more.
TEST_F(KernelWaitsTest, AllLooksButTheLastMayBeOld) {
  for (const uint64_t looksOfOne : {Standstill::kLooks - 1, Standstill::kLooks}) {
    launches(0, Sends{1});
    launchesCollective(1);
    for (Rank& rank : ranks_) rank.standstill = {};
    uint64_t found = 0;
    for (int i = -Standstill::kWindow; i < Standstill::kWindow; ++i) {
      looks(0, Awaited::kReceiver, 1);
      if (i < static_cast<int>(looksOfOne)) looks(1, Awaited::kPeer, 0);
      found |= turn()[0];
    }
    EXPECT_EQ(found, looksOfOne < Standstill::kLooks ? 0 : bit(0) | bit(1)) << looksOfOne;
  }
}

// Of a GPU that is slow, or runs several processes in turns, looks come seldom.
TEST_F(KernelWaitsTest, LooksMayComeSeldom) {
  for (const int each : {2, 4, 16}) {
    launches(0, Sends{1});
    launchesCollective(1);
    for (Rank& rank : ranks_) rank.standstill = {};
    uint64_t found = 0;
    int turns = 0;
    for (; found == 0 && turns < 1000; ++turns) {
      looks(0, Awaited::kReceiver, 1);
      if (turns % each == 0) looks(1, Awaited::kPeer, 0);
      found = turn()[0];
    }
    EXPECT_EQ(found, bit(0) | bit(1)) << "a look in " << each << " turns";
    EXPECT_LE(turns, 4 * each * static_cast<int>(Standstill::kLooks) + Standstill::kWindow);
  }
}

// What a rank finds of one wait does not depend on how long it waited before.
TEST_F(KernelWaitsTest, ALongWaitDoesNotDelayTheNextOne) {
  launches(0, Receives{1});
  for (int i = 0; i < 1000; ++i) {
    looks(0, Awaited::kSender, 1);
    ASSERT_EQ(turn()[0], 0u);
  }
  launches(0, Sends{1});
  launchesCollective(1);
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kPeer, 0);
            }),
            bit(0) | bit(1));
}

TEST_F(KernelWaitsTest, ALongWaitIsInVainSoonAfterItsPeerHasGone) {
  launches(0, Receives{1});
  for (int i = 0; i < 1000; ++i) {
    looks(0, Awaited::kSender, 1);
    turn();
  }
  gone_ = bit(1);
  EXPECT_EQ(after40([&] { looks(0, Awaited::kSender, 1); }), 0u);
  EXPECT_EQ(absent_[0], 1);
}

TEST_F(KernelWaitsTest, AnotherLaunchIsAnotherWait) {
  for (int i = 0; i < 20; ++i) {
    launches(0, Sends{1});
    launchesCollective(1);
    for (int looksOfEach = 0; looksOfEach < 2; ++looksOfEach) {
      looks(0, Awaited::kReceiver, 1);
      looks(1, Awaited::kPeer, 0);
      EXPECT_EQ(turn()[0], 0u) << "of launch " << i;
    }
  }
}

TEST_F(KernelWaitsTest, WhoIsGoneIsWaitedForInVain) {
  launches(0, Receives{1});
  gone_ = bit(1);
  EXPECT_EQ(after40([&] { looks(0, Awaited::kSender, 1); }), 0u);
  EXPECT_EQ(absent_[0], 1);
}

TEST_F(KernelWaitsTest, WhoIsGoneMayBeOneForWhomNobodyWaits) {
  launches(0, Receives{1});
  gone_ = bit(2);
  EXPECT_EQ(after40([&] { looks(0, Awaited::kSender, 1); }), 0u);
  EXPECT_EQ(absent_[0], -1);
}

TEST_F(KernelWaitsTest, WhatIsNotKnownIsNotPublished) {
  launches(0, Sends{1});
  launchesCollective(1);
  ranks_[1].isKnown = false;  // of a graph
  EXPECT_EQ(after40([&] {
              looks(0, Awaited::kReceiver, 1);
              looks(1, Awaited::kPeer, 0);
            }),
            0u);
}

TEST(LaunchLog, TellsWaitsForSignalsFromTransfers) {
  LaunchLog log;
  for (const Collective collective : {Collective::kReceive, Collective::kWaitSignal}) {
    LaunchLog::Entry entry;
    entry.first.sequence = 1;
    entry.first.collective = static_cast<uint8_t>(collective);
    log.add(std::move(entry));
    const WaitingLaunch what = log.describe(*log.oldest());
    EXPECT_TRUE(what.isTransfers);
    EXPECT_EQ(what.isOfSignals, collective == Collective::kWaitSignal);
    log.drop();
  }
}

TEST(LongWait, GoesThroughAWord) {
  using stretto::cuda::LongLook;
  const LongLook look = LongLook::of(LongLook::at(0xfedcba98, 0x12345678, 640).word());
  EXPECT_EQ(look.launch, 0xfedcba98u);
  EXPECT_EQ(look.waited, 20u);
  EXPECT_EQ(look.span, uint16_t{0x12345678 / LongLook::kTicks & 0xffff});
  EXPECT_EQ(LongLook::at(1, 1, stretto::cuda::kMostTicks - 1).waited, LongLook::kMostWaited);
}

// A deadline that would be 0, or even, is a turn later: the wait has not gone on since for ever.
TEST(LongWait, IsOneOf128Turns) {
  for (const uint32_t limit : {2u, 3u, 3433228u, stretto::cuda::kMostTicks - 1}) {
    for (const uint32_t begin : {0u, 1u, 1000u, 1001u, ~0u - 1, ~0u}) {
      const uint32_t deadline = stretto::cuda::deadlineOf(begin, limit);
      EXPECT_NE(deadline, 0u);
      for (const uint32_t after : {0u, 1u, 2u, 127u}) {
        EXPECT_FALSE(stretto::cuda::isLong(begin + after, deadline, limit)) << begin << "+" << after;
      }
      for (const uint32_t after : {129u, 1000u, 10000000u}) {
        EXPECT_TRUE(stretto::cuda::isLong(begin + after, deadline, limit)) << begin << "+" << after;
      }
    }
  }
}

}  // namespace
}  // namespace stretto::communicator
