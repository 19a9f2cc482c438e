// A wait that becomes long is told of at WARN, once, with the rank that is late and the operation; the wait
// goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include "communicator/device/late_launch.hpp"
#include "harness/captured_log.hpp"
#include "harness/ranks.hpp"
#include "harness/temporary_folder.hpp"
#include "observe/doctor.hpp"

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

// After so long a wait is long, and so late one rank comes: a busy machine may hold up the others for less
// than that.
constexpr const char* kWarnAfter = "0.5";
constexpr double kLate = 1.4;

// After how many seconds `who` said that it waits; a large number if it did not.
double secondsToldBy(const std::string& text, const std::string& who) {
  const std::string words = who + " has waited ";
  const size_t at = text.find(words);
  return at == text.npos ? 1e9 : strtod(text.c_str() + at + words.size(), nullptr);
}

TEST(LongWait, IsToldOnceByEachThatWaits) {
  const ScopedVariable after("STRETTO_WARN_AFTER", kWarnAfter);
  CapturedWarnings warnings;
  asThreads(3, connected([](Member& member) { comeLate(member, kLate); }));
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "has waited"), 2u) << text;
  for (const char* who : {"rank 0", "rank 2"}) {
    EXPECT_GE(secondsToldBy(text, who), 0.5) << text;
    EXPECT_LT(secondsToldBy(text, who), kLate) << "it is told of while it lasts: " << text;
  }
  EXPECT_EQ(timesIn(text, "in #2 all_reduce float32 x 1 sum (not entered by rank 1)"), 2u) << text;
  EXPECT_EQ(timesIn(text, "STRETTO WARN"), 2u) << text;
}

TEST(LongWait, OfATransferNamesThePeersLastCall) {
  const ScopedVariable after("STRETTO_WARN_AFTER", kWarnAfter);
  CapturedWarnings warnings;
  asThreads(2, connected([](Member& member) {
              sum(member);
              float value = 0;
              if (member.rank == 0) {
                member.expect(ncclRecv(&value, 1, ncclFloat32, 1, member.comm, nullptr), "receive");
              } else {
                sleepSeconds(kLate);
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
  const ScopedVariable after("STRETTO_WARN_AFTER", kWarnAfter);
  CapturedWarnings warnings;
  asThreads(3, [](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (member.rank == 2) sleepSeconds(kLate);
    member.expect(ncclCommInitRank(&member.comm, 3, id, member.rank), "init");
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "goes on waiting: 2 of 3 ranks joined within 0.5 s, missing rank 2"), 2u) << text;
}

namespace files = std::filesystem;

std::vector<files::path> copiesIn(const files::path& folder) {
  std::vector<files::path> found;
  for (const auto& entry : files::directory_iterator(folder)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  return found;
}

// One of the ranks that wait copies what all of them, and the one that is late, were doing.
TEST(LateWait, CopiesTheRecordersOfItsCommunicator) {
  const TemporaryFolder folder("late");
  const ScopedVariable directory("STRETTO_FLIGHT_DIR", folder.path().c_str());
  const ScopedVariable late("STRETTO_FLIGHT_LATE", "0.4");
  CapturedWarnings warnings;
  asThreads(3, connected([](Member& member) {
              comeLate(member, 1);
              comeLate(member, 1);  // too soon for another copy
            }));
  const std::string text = warnings.take();
  const auto copies = copiesIn(folder.path());
  ASSERT_EQ(copies.size(), 1u) << text;
  EXPECT_EQ(timesIn(text, "stretto doctor " + copies[0].string()), 1u) << text;
  EXPECT_TRUE(copies[0].filename().string().ends_with("-2")) << copies[0];
  const auto reading = observe::readTarget(copies[0]);
  ASSERT_TRUE(reading.ok()) << lastError();
  EXPECT_EQ(reading.value().snapshots.size(), 3u);
  const observe::Diagnosis diagnosis = observe::diagnose(reading.value());
  ASSERT_EQ(diagnosis.communicators.size(), 1u);
  EXPECT_EQ(diagnosis.communicators[0].suspects, std::vector{1}) << diagnosis.text;
  EXPECT_NE(diagnosis.text.find("has not entered #2 all_reduce"), std::string::npos) << diagnosis.text;
}

TEST(LateWait, LeavesShortOnesAlone) {
  const TemporaryFolder folder("late");
  const ScopedVariable directory("STRETTO_FLIGHT_DIR", folder.path().c_str());
  const ScopedVariable late("STRETTO_FLIGHT_LATE", "30");
  asThreads(3, connected([](Member& member) { comeLate(member, 0.3); }));
  EXPECT_EQ(copiesIn(folder.path()).size(), 0u);
}

TEST(LateWait, NeedsAFolder) {
  for (const char* folder : {"", "none"}) {
    const ScopedVariable directory("STRETTO_FLIGHT_DIR", folder);
    const ScopedVariable late("STRETTO_FLIGHT_LATE", "1");
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("needs STRETTO_FLIGHT_DIR"), std::string::npos);
  }
}

// The ranks that operations of the recorders there cannot go on without.
std::vector<int> awaitedIn(const files::path& folder) {
  std::vector<int> awaited;
  const auto reading = observe::readDirectory(folder);
  EXPECT_TRUE(reading.ok()) << lastError();
  if (!reading.ok()) return awaited;
  for (const auto& flight : reading.value().snapshots) {
    for (const auto& operation : flight.operations) {
      if (operation.awaited >= 0) awaited.push_back(operation.awaited);
    }
  }
  return awaited;
}

// What a wait is for is in the recorder while it lasts, and not after it.
TEST(LongWait, IsInTheFlightRecorder) {
  const TemporaryFolder folder("waiting");
  const ScopedVariable directory("STRETTO_FLIGHT_DIR", folder.path().c_str());
  std::vector<int> awaited;
  asThreads(2, connected([&](Member& member) {
              sum(member);
              if (member.rank == 1) {
                for (int look = 0; look < 600 && awaited.empty(); ++look) {
                  sleepSeconds(0.05);
                  awaited = awaitedIn(folder.path());
                }
              }
              sum(member);
            }));
  EXPECT_EQ(awaited, std::vector{1});
  EXPECT_EQ(awaitedIn(folder.path()), std::vector<int>{});
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
