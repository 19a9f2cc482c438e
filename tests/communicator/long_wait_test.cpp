// A wait that becomes long is told of at WARN, once, with the rank that is late and the operation; the wait
// goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "communicator/late_launch.hpp"
#include "harness/captured_log.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using communicator::KernelWaitsOf;
using communicator::LateLaunch;
using stretto::cuda::Awaited;
using stretto::cuda::awaitedAt;
using stretto::cuda::LongLook;

void sleepSeconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}
void sum(const Member& member) {
  float value = 1;
  member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "all-reduce");
  member.check(value == static_cast<float>(member.ranks()), "wrong sum");
}
void comeLate(Member& member, double seconds) {
  sum(member);
  if (member.rank == 1) sleepSeconds(seconds);
  sum(member);
}

TEST(LongWait, IsToldOnceByEachThatWaits) {
  const ScopedVariable after("STRETTO_WARN_AFTER", "0.2");
  CapturedWarnings warnings;
  asThreads(3, connected([](Member& member) { comeLate(member, 1); }));
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "has waited"), 2u) << text;
  for (const char* who : {"rank 0 has waited 0.", "rank 2 has waited 0."})
    EXPECT_EQ(timesIn(text, who), 1u) << text;
  EXPECT_EQ(timesIn(text, "in #2 all_reduce float32 x 1 sum (not entered by rank 1)"), 2u) << text;
  EXPECT_EQ(timesIn(text, "STRETTO WARN"), 2u) << text;
}

TEST(LongWait, OfATransferNamesThePeersLastCall) {
  const ScopedVariable after("STRETTO_WARN_AFTER", "0.2");
  CapturedWarnings warnings;
  asThreads(2, connected([](Member& member) {
              sum(member);
              float value = 0;
              if (member.rank == 0) {
                member.expect(ncclRecv(&value, 1, ncclFloat32, 1, member.comm, nullptr), "receive");
              } else {
                sleepSeconds(1);
                member.expect(ncclSend(&value, 1, ncclFloat32, 0, member.comm, nullptr), "send");
              }
            }));
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "has waited"), 1u) << text;
  EXPECT_EQ(timesIn(text, "for rank 1 in receive float32 x 1 from rank 1 (its last call: #1 all_reduce"), 1u)
      << text;
}

TEST(LongWait, IsNotToldOfShortOnesNorWhenNobodyWantsIt) {
  for (const char* seconds : {"5", "0"}) {
    const ScopedVariable after("STRETTO_WARN_AFTER", seconds);
    CapturedWarnings warnings;
    asThreads(3, connected([](Member& member) { comeLate(member, 0.5); }));
    EXPECT_EQ(warnings.take(), "") << seconds;
  }
}

TEST(LongWait, NeedsANumber) {
  const ScopedVariable after("STRETTO_WARN_AFTER", "soon");
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("STRETTO_WARN_AFTER=soon"), std::string::npos);
}

TEST(LongWait, ForRanksToJoinNamesThem) {
  const ScopedVariable after("STRETTO_WARN_AFTER", "0.2");
  CapturedWarnings warnings;
  asThreads(3, [](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (member.rank == 2) sleepSeconds(1);
    member.expect(ncclCommInitRank(&member.comm, 3, id, member.rank), "init");
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "goes on waiting: 2 of 3 ranks joined within 0.2 s, missing rank 2"), 2u) << text;
}

// What ranks on GPUs are told by, a tenth of a second at a time.
class LateLaunches : public ::testing::Test {
 protected:
  // Somebody of that launch waits for a peer, since `began` or since now.
  void waitsFor(Awaited what, int peer, uint32_t launch, double began) {
    const double spans = std::max(0.0, seconds_ - began) / LongLook::kSpanSeconds;
    looks_[static_cast<size_t>(awaitedAt(what, peer))] = {launch, static_cast<uint16_t>(spans), ++span_};
  }
  // What is told in the next tenth of a second.
  LateLaunch::Found next() {
    seconds_ += 0.1;
    return late_.look(looks_, seconds_);
  }
  // How often `look` is told of while it goes on for `seconds`.
  template <typename Look>
  int times(double seconds, Look look) {
    int times = 0;
    for (int i = 0; i < std::lround(seconds * 10); ++i) {
      look();
      times += next().launch != 0 ? 1 : 0;
    }
    return times;
  }

  LateLaunch late_{10};
  KernelWaitsOf::Looks looks_{};
  double seconds_ = 5;
  uint16_t span_ = 0;
};

TEST_F(LateLaunches, IsToldOnceAfterItsTime) {
  double began = seconds_;
  EXPECT_EQ(times(9.5, [&] { waitsFor(Awaited::kPeer, 2, 7, began); }), 0);
  LateLaunch::Found found;
  while (found.launch == 0 && seconds_ < 20) {
    waitsFor(Awaited::kPeer, 2, 7, began);
    waitsFor(Awaited::kPeer, 0, 7, began);
    found = next();
  }
  EXPECT_EQ(found.launch, 7u);
  EXPECT_EQ(found.peers, 5u);
  EXPECT_NEAR(found.seconds, 10, 0.2);
  EXPECT_EQ(times(30, [&] { waitsFor(Awaited::kPeer, 2, 7, began); }), 0) << "again";
  began = seconds_;
  EXPECT_EQ(times(15, [&] { waitsFor(Awaited::kPeer, 2, 8, began); }), 1) << "the next launch";
}

TEST_F(LateLaunches, ManyShortWaitsAreNotOneLongWait) {
  double began = seconds_;
  EXPECT_EQ(times(60,
                  [&] {
                    if (span_ % 50 == 0) began = seconds_;
                    waitsFor(Awaited::kSender, 1, 1 + span_ / 50, began);
                  }),
            0);
}

// It has the same number each time: the wait itself says since when it is.
TEST_F(LateLaunches, AGraphThatRunsAgainIsNotLate) {
  for (const Awaited what : {Awaited::kPeer, Awaited::kReceiver, Awaited::kSender}) {
    double began = seconds_;
    EXPECT_EQ(times(60,
                    [&] {
                      if (span_ % 50 == 0) began = seconds_;
                      waitsFor(what, 1, 3, began);
                    }),
              0);
    began = seconds_;
    EXPECT_EQ(times(12, [&] { waitsFor(what, 1, 3, began); }), 1);
    began = seconds_;
    EXPECT_EQ(times(12, [&] { waitsFor(what, 1, 3, began); }), 1) << "in another run";
  }
}

TEST_F(LateLaunches, IsToldOnceHoweverLongItTakes) {
  const double began = seconds_;
  EXPECT_EQ(times(3000, [&] { waitsFor(Awaited::kPeer, 1, 3, std::max(began, seconds_ - 1000)); }), 1);
}

TEST_F(LateLaunches, NeverIsNever) {
  LateLaunch never(std::numeric_limits<double>::infinity());
  for (seconds_ = 0; seconds_ < 1000; ++seconds_) {
    waitsFor(Awaited::kPeer, 1, 3, 0);
    EXPECT_EQ(never.look(looks_, seconds_).launch, 0u);
  }
}

}  // namespace
}  // namespace stretto
