// Children that are made while something goes wrong, several of them in one group, without waiting; calls
// that come after ncclCommFinalize; and what a forked child may do with its parent's communicator.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "api/calls.hpp"
#include "base/scoped_variable.hpp"
#include "harness/child.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

ncclResult_t stateOf(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

ncclConfig_t withoutBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// ---- A fault while a child is made ------------------------------------------------------------------------

// Rank 2, for which the others wait in the child's making, dies: they are told by the parent. Of those that
// are in the parent, `callers` make the child.
void tellsOfADeathWhile(int callers,
                        const std::function<ncclResult_t(ncclComm_t, int rank, ncclComm_t*)>& make) {
  constexpr int kVictim = 2;
  const Board board(4);
  Processes processes(board, connected([&](Member& member) {
                        ++member.board.word(0);
                        if (member.rank == kVictim) {
                          while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
                        }
                        const Canary canary;
                        ncclComm_t child = nullptr;
                        if (member.rank < callers) {
                          member.expect(make(member.comm, member.rank, &child), "the child", ncclRemoteError);
                          const double late = secondsNow() - static_cast<double>(member.board.word(1)) * 1e-6;
                          member.check(member.board.word(1) != 0 && late < canary.limit(kNoticed),
                                       "told late");
                          member.expectError("the error", {"rank 2", "lost"});
                          member.check(child == nullptr, "there is a child");
                        }
                        (void)eventually(5, [&] { return stateOf(member.comm) == ncclRemoteError; });
                        member.expect(stateOf(member.comm), "the parent's state", ncclRemoteError);
                        ncclCommAbort(member.comm);
                        member.comm = nullptr;
                      }),
                      30);
  ASSERT_TRUE(eventually(20, [&] { return board.word(0) == 4; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  board.word(1) = static_cast<uint64_t>(secondsNow() * 1e6);
  processes.kill(kVictim);
  processes.finish(kVictim);
}

TEST(ChildInTheMaking, EndsWhenAMemberDies) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  tellsOfADeathWhile(3, [](ncclComm_t parent, int, ncclComm_t* child) {
    int excluded[] = {3};
    return ncclCommShrink(parent, excluded, 1, child, nullptr, NCCL_SHRINK_DEFAULT);
  });
}

// All wait in the parent's exchange of colours.
TEST(ChildInTheMaking, BySplitEndsWhenAMemberDies) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  tellsOfADeathWhile(4, [](ncclComm_t parent, int rank, ncclComm_t* child) {
    return ncclCommSplit(parent, rank % 2, rank, child, nullptr);
  });
}

// The other rank never calls: `make` waits until the parent, or the child, is aborted.
void abortsWhile(const std::function<ncclResult_t(ncclComm_t, ncclComm_t*)>& make) {
  const Canary canary;
  asThreads(3, connected([&](Member& member) {
              if (member.rank != 0) {
                member.board.meet();
                return;
              }
              double began = 0;
              ncclComm_t parent = std::exchange(member.comm, nullptr);
              std::thread aborts([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                began = secondsNow();
                member.expect(ncclCommAbort(parent), "abort");
              });
              ncclComm_t child = nullptr;
              member.check(make(parent, &child) != ncclSuccess, "a child of one rank of two");
              aborts.join();
              if (secondsNow() - began > canary.limit(kNoticed)) member.complain("the wait went on");
              member.board.meet();
            }),
            30);
}

TEST(ChildInTheMaking, EndsWhenTheParentIsAborted) {
  abortsWhile([](ncclComm_t parent, ncclComm_t* child) {
    int excluded[] = {2};
    return ncclCommShrink(parent, excluded, 1, child, nullptr, NCCL_SHRINK_DEFAULT);
  });
  abortsWhile(
      [](ncclComm_t parent, ncclComm_t* child) { return ncclCommSplit(parent, 0, 0, child, nullptr); });
}

// A rank that has destroyed its communicator will not come to a child of it.
TEST(ChildInTheMaking, EndsWhenAMemberHasLeft) {
  const Canary canary;
  asThreads(4, connected([&](Member& member) {
              if (member.rank == 1) {
                member.expect(ncclCommDestroy(std::exchange(member.comm, nullptr)), "destroy");
              }
              if (member.rank % 2 != 0) {
                member.board.meet();
                return;
              }
              int excluded[] = {3};
              ncclComm_t child = nullptr;
              const double began = secondsNow();
              member.expect(ncclCommShrink(member.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT),
                            "shrink", ncclRemoteError);
              if (secondsNow() - began > canary.limit(kNoticed)) member.complain("told late");
              member.expectError("the error", {"rank 1", "left"});
              member.board.meet();
            }),
            30);
}

using Make = std::function<ncclResult_t(const Member&, ncclComm_t*)>;

// `culprit` has its seat, but cannot join the child: those who wait for it there hear so by the parent.
void isMadeByAllBut(int culprit, int members, const Make& make) {
  const ScopedVariable limit("STRETTO_INIT_TIMEOUT", "10");
  asProcesses(3, connected([&](Member& member) {
                const Canary canary;
                if (member.rank == culprit) setenv("STRETTO_TABLE", "/nowhere/table.json", 1);
                ncclComm_t child = nullptr;
                const double began = secondsNow();
                const ncclResult_t result = member.rank < members ? make(member, &child) : ncclRemoteError;
                if (member.rank == culprit) {
                  member.check(result != ncclSuccess, "a child with a table that is none");
                } else if (member.rank < members) {
                  member.expect(result, "a child that a rank cannot make", ncclRemoteError);
                  member.expectError("the error", {"rank " + std::to_string(culprit), "given up"});
                  if (secondsNow() - began > canary.limit(kNoticed)) member.complain("told late");
                }
                member.check(child == nullptr, "there is a child");
                member.board.meet();
              }),
              60);
}

TEST(ChildInTheMaking, EndsWhenAMemberCannotMakeIt) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  const Make split = [](const Member& member, ncclComm_t* child) {
    return ncclCommSplit(member.comm, 0, member.rank, child, nullptr);
  };
  const Make shrink = [](const Member& member, ncclComm_t* child) {
    int excluded[] = {2};
    return ncclCommShrink(member.comm, excluded, 1, child, nullptr, NCCL_SHRINK_DEFAULT);
  };
  const Make grow = [](const Member& member, ncclComm_t* child) {
    ncclUniqueId id;
    const bool gives = member.rank == 2;
    if (gives) member.expect(ncclCommGetUniqueId(member.comm, &id), "the name");
    return ncclCommGrow(member.comm, 4, gives ? &id : nullptr, -1, child, nullptr);
  };
  for (const int culprit : {0, 1}) {
    isMadeByAllBut(culprit, 3, split);
    isMadeByAllBut(culprit, 2, shrink);
    isMadeByAllBut(culprit, 3, grow);
  }
}

// Who is left out, or has left the parent after the child was made, does not matter to the child.
TEST(ChildInTheMaking, IsMadeThoughMembersAbortTheParentAtOnce) {
  for (int round = 0; round < 20; ++round) {
    asThreads(4, connected([](Member& member) {
                ncclComm_t child = nullptr;
                int excluded[] = {3};
                member.board.meet();  // all are ready
                if (member.rank != 3) {
                  member.expect(ncclCommShrink(member.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT),
                                "shrink");
                }
                ncclCommAbort(std::exchange(member.comm, nullptr));
                if (child == nullptr) return;
                member.check(sumOfOnes(member, child, "sum of the child") == 3, "a wrong sum");
                member.expect(ncclCommDestroy(child), "destroy the child");
              }));
  }
}

// ---- Without waiting --------------------------------------------------------------------------------------

// One thread holds all ranks of a communicator that does not block.
class WithoutBlocking : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;
  void SetUp() override {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = withoutBlocking();
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(ncclCommInitRankConfig(&comms_[rank], kRanks, id, rank, &config), ncclInProgress);
    }
    ASSERT_TRUE(ready(comms_));
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  static bool ready(const std::array<ncclComm_t, kRanks>& comms) {
    return eventually(20, [&] {
      return std::all_of(comms.begin(), comms.end(),
                         [](ncclComm_t comm) { return comm != nullptr && stateOf(comm) == ncclSuccess; });
    });
  }
  static void expectSum(const std::array<ncclComm_t, kRanks>& comms) {
    int values[kRanks] = {1, 1};
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ncclAllReduce(&values[rank], &values[rank], 1, ncclInt32, ncclSum, comms[rank], nullptr),
                ncclInProgress);
    }
    ASSERT_TRUE(ready(comms));
    EXPECT_EQ(values[0], kRanks);
  }
  void expectSplit() const {
    std::array<ncclComm_t, kRanks> children{};
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(ncclCommSplit(comms_[rank], 0, rank, &children[rank], nullptr), ncclInProgress);
    }
    ASSERT_TRUE(ready(children)) << ncclGetLastError(children[0]);
    expectSum(children);
    for (ncclComm_t child : children) EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  }
  std::array<ncclComm_t, kRanks> comms_{};
};

TEST_F(WithoutBlocking, SplitsAllItsRanks) {
  const Watchdog watchdog("splits by one thread", 30);
  std::array<ncclComm_t, kRanks> children{}, more{};
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(ncclCommSplit(comms_[rank], 0, rank, &children[rank], nullptr), ncclInProgress);
    int number = 0;
    const ncclResult_t asked = ncclCommCount(children[rank], &number);
    EXPECT_TRUE(asked == ncclInProgress || (asked == ncclSuccess && number == kRanks));
  }
  // A second one before the first is done, to which rank 1 does not belong.
  EXPECT_EQ(ncclCommSplit(comms_[0], 3, 0, &more[0], nullptr), ncclInProgress);
  EXPECT_EQ(ncclCommSplit(comms_[1], NCCL_SPLIT_NOCOLOR, 0, &more[1], nullptr), ncclInProgress);
  EXPECT_EQ(more[1], nullptr);
  ASSERT_TRUE(ready(children));
  expectSum(children);
  ASSERT_TRUE(eventually(20, [&] { return stateOf(more[0]) == ncclSuccess; }));
  int number = 0;
  EXPECT_EQ(ncclCommCount(more[0], &number), ncclSuccess);
  EXPECT_EQ(number, 1);
  for (ncclComm_t child : children) EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(more[0]), ncclSuccess);
  ASSERT_TRUE(ready(comms_));
}

TEST_F(WithoutBlocking, AbortsAChildThatNobodyElseMakes) {
  const Watchdog watchdog("abort of a child", 30);
  const Canary canary;
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &child, nullptr), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double began = secondsNow();
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
  EXPECT_LT(secondsNow() - began, canary.limit(kNoticed));
}

TEST_F(WithoutBlocking, HearsOfAMemberThatGaveUpTheSplit) {
  const Watchdog watchdog("a split that a member gave up", 30);
  const Canary canary;
  ncclComm_t given = nullptr, child = nullptr;
  ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &given, nullptr), ncclInProgress);
  ASSERT_EQ(ncclCommAbort(given), ncclSuccess);
  const double began = secondsNow();
  ASSERT_EQ(ncclCommSplit(comms_[1], 0, 0, &child, nullptr), ncclInProgress);
  ASSERT_TRUE(eventually(20, [&] { return stateOf(child) != ncclInProgress; }));
  EXPECT_EQ(stateOf(child), ncclRemoteError) << ncclGetLastError(child);
  EXPECT_LT(secondsNow() - began, canary.limit(2 * kNoticed));
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
}

TEST_F(WithoutBlocking, HasNoMemoryToTellOfUntilItIsMade) {
  const Watchdog watchdog("memory of a child that is being made", 30);
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &child, nullptr), ncclInProgress);
  uint64_t bytes = 0;
  EXPECT_EQ(ncclCommMemStats(child, ncclStatGpuMemTotal, &bytes), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("still being made"), std::string::npos);
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
}

TEST_F(WithoutBlocking, HearsOfAMemberThatGaveUpTheGrowth) {
  const Watchdog watchdog("a growth that a member gave up", 30);
  const Canary canary;
  ncclUniqueId id;
  ncclComm_t given = nullptr, child = nullptr;
  ASSERT_EQ(ncclCommGetUniqueId(comms_[1], &id), ncclSuccess);
  ASSERT_EQ(ncclCommGrow(comms_[0], 3, nullptr, -1, &given, nullptr), ncclInProgress);
  ASSERT_EQ(ncclCommAbort(given), ncclSuccess);
  const double began = secondsNow();
  ASSERT_EQ(ncclCommGrow(comms_[1], 3, &id, -1, &child, nullptr), ncclInProgress);
  ASSERT_TRUE(eventually(20, [&] { return stateOf(child) != ncclInProgress; }));
  EXPECT_EQ(stateOf(child), ncclRemoteError) << ncclGetLastError(child);
  EXPECT_LT(secondsNow() - began, canary.limit(2 * kNoticed));
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
}

// What a rank gives up ends for the others, too, and ends nothing else: later splits find all ranks in step.
TEST_F(WithoutBlocking, SplitsAgainAfterSplitsThatWereAborted) {
  const Watchdog watchdog("splits after aborted ones", 60);
  constexpr int kAborted = 3;
  for (int i = 0; i < kAborted; ++i) {
    ncclComm_t given = nullptr;
    ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &given, nullptr), ncclInProgress);
    ASSERT_EQ(ncclCommAbort(given), ncclSuccess);
  }
  for (int i = 0; i < kAborted; ++i) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comms_[1], 0, 0, &child, nullptr), ncclInProgress);
    ASSERT_TRUE(eventually(20, [&] { return stateOf(child) != ncclInProgress; }));
    EXPECT_EQ(stateOf(child), ncclRemoteError) << ncclGetLastError(child);
    EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
  }
  expectSplit();
  expectSum(comms_);
}

// The split waits behind an all-reduce for its turn when its child is aborted.
TEST_F(WithoutBlocking, SplitsAgainAfterOneThatWasAbortedBeforeItsTurn) {
  const Watchdog watchdog("a split aborted before its turn", 60);
  int values[kRanks] = {1, 1};
  const auto add = [&](int rank) {
    return ncclAllReduce(&values[rank], &values[rank], 1, ncclInt32, ncclSum, comms_[rank], nullptr);
  };
  ncclComm_t given = nullptr, child = nullptr;
  ASSERT_EQ(add(0), ncclInProgress);
  ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &given, nullptr), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(ncclCommAbort(given), ncclSuccess);
  ASSERT_EQ(add(1), ncclInProgress);
  ASSERT_EQ(ncclCommSplit(comms_[1], 0, 0, &child, nullptr), ncclInProgress);
  ASSERT_TRUE(eventually(20, [&] { return stateOf(child) != ncclInProgress; }));
  EXPECT_EQ(stateOf(child), ncclRemoteError) << ncclGetLastError(child);
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
  ASSERT_TRUE(ready(comms_));
  EXPECT_EQ(values[0], kRanks);
  expectSum(comms_);
  expectSplit();
}

TEST_F(WithoutBlocking, CallsNothingAfterFinalize) {
  const Watchdog watchdog("a late call", 30);
  int values[kRanks] = {1, 1};
  const auto add = [&](int rank) {
    return ncclAllReduce(&values[rank], &values[rank], 1, ncclInt32, ncclSum, comms_[rank], nullptr);
  };
  ASSERT_EQ(add(0), ncclInProgress);  // rank 1 comes later, so that the end takes as long as the test wants
  ASSERT_EQ(ncclCommFinalize(comms_[0]), ncclInProgress);
  EXPECT_EQ(add(0), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("ncclCommFinalize"), std::string::npos)
      << ncclGetLastError(nullptr);
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(comms_[0], 0, 0, &child, nullptr), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(comms_[0]), ncclInvalidUsage);
  EXPECT_EQ(stateOf(comms_[0]), ncclInProgress);
  ASSERT_EQ(add(1), ncclInProgress);
  ASSERT_TRUE(ready(comms_));
  EXPECT_EQ(values[0], kRanks);
}

// ---- Several in one group ---------------------------------------------------------------------------------

void splitTwice(Member& member) {
  ncclComm_t first = nullptr, second = nullptr, none = nullptr;
  const int half = member.rank % 2;
  member.expect(ncclGroupStart(), "start");
  member.expect(ncclCommSplit(member.comm, half, member.rank, &first, nullptr), "first");
  member.expect(ncclCommSplit(member.comm, 0, -member.rank, &second, nullptr), "second");
  member.expect(ncclCommSplit(member.comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), "none");
  if (!member.expect(ncclGroupEnd(), "end")) return;
  member.check(sumOfOnes(member, first, "sum of the first") == (half == 0 ? 3 : 2),
               "a wrong sum of the first");
  member.check(sumOfOnes(member, second, "sum of the second") == 5, "a wrong sum of the second");
  int rank = -1;
  ncclCommUserRank(second, &rank);
  member.check(rank == 4 - member.rank, "a wrong order in the second");
  member.check(none == nullptr, "a child without colour");
  member.check(sumOfOnes(member, member.comm, "sum of the parent") == 5, "a wrong sum of the parent");
  member.expect(ncclCommDestroy(first), "destroy");
  member.expect(ncclCommDestroy(second), "destroy");
}

TEST(Group, MaySplitACommunicatorSeveralTimes) {
  for (int round = 0; round < 10; ++round) asThreads(5, connected(splitTwice));
}

TEST(GroupOfProcesses, MaySplitACommunicatorSeveralTimes) {
  asProcesses(5, connected(splitTwice));
}

TEST(Group, OfOneThreadMaySplitAllItsRanksSeveralTimes) {
  const Watchdog watchdog("splits in a group", 30);
  constexpr int kRanks = 3;
  ncclComm_t comms[kRanks] = {}, first[kRanks] = {}, second[kRanks] = {};
  ASSERT_EQ(ncclCommInitAll(comms, kRanks, nullptr), ncclSuccess);
  ncclGroupStart();
  for (int rank = 0; rank < kRanks; ++rank) ncclCommSplit(comms[rank], 0, 0, &first[rank], nullptr);
  for (int rank = 0; rank < kRanks; ++rank) ncclCommSplit(comms[rank], 0, -rank, &second[rank], nullptr);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (ncclComm_t child : {first[rank], second[rank]}) {
      int ranks = 0;
      EXPECT_EQ(ncclCommCount(child, &ranks), ncclSuccess);
      EXPECT_EQ(ranks, kRanks);
    }
  }
  for (auto* all : {first, second, comms}) {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ncclCommAbort(all[rank]), ncclSuccess);
  }
}

// ---- A forked child ---------------------------------------------------------------------------------------

TEST(Fork, AChildBreaksNothingOfItsParents) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  using End = std::function<ncclResult_t(ncclComm_t)>;
  const End ends[] = {
      ncclCommAbort,
      ncclCommDestroy,
      ncclCommFinalize,
      [](ncclComm_t comm) { return ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT); },
      [](ncclComm_t comm) {
        ncclResult_t state = ncclSuccess;
        return ncclCommGetAsyncError(comm, &state);
      },
      [](ncclComm_t comm) {
        strettoCounters_t counters{};
        counters.size = sizeof counters;
        return strettoCommCounters(comm, &counters);
      },
      [](ncclComm_t comm) {
        int arrived = 0;
        return strettoCommProbe(comm, 1, &arrived);
      },
      [](ncclComm_t comm) {
        float value = 1;
        return ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
      },
  };
  asProcesses(3, connected([&](Member& member) {
                for (const End& end : ends) {
                  member.check(sumOfOnes(member, member.comm, "sum before") == 3, "a wrong sum before");
                  if (member.rank == 1) {
                    const pid_t child = ::fork();
                    if (child == 0) ::_exit(end(member.comm) == ncclInvalidUsage ? 0 : 1);
                    int status = -1;
                    ::waitpid(child, &status, 0);
                    member.check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child was not refused");
                  }
                  member.check(sumOfOnes(member, member.comm, "sum after") == 3, "a wrong sum after");
                  member.expect(stateOf(member.comm), "the state");
                }
                if (member.rank != 1) return;
                const pid_t child = ::fork();
                if (child == 0) std::exit(0);  // with all that a process does at its end
                int status = -1;
                ::waitpid(child, &status, 0);
                member.check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child did not end well");
              }),
              30);
}

// Calls that wait for what runs would wait for ever in a child, where nothing runs.
TEST(Fork, AChildDoesNotWaitForWhatItsParentRuns) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  asProcesses(2, connected([](Member& member) {
                if (member.rank == 0) {
                  member.board.meet();  // the other has forked
                  member.check(sumOfOnes(member, member.comm, "sum") == 2, "a wrong sum");
                  return;
                }
                std::thread operation(
                    [&] { member.check(sumOfOnes(member, member.comm, "sum") == 2, "a wrong sum"); });
                std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it has begun, and waits
                const pid_t child = ::fork();
                if (child == 0) {
                  ::alarm(10);
                  const ncclResult_t told =
                      strettoCommForce(member.comm, "all_reduce", "ring", "simple", 0, 0);
                  ::_exit(told == ncclInvalidUsage ? 0 : 1);
                }
                int status = -1;
                ::waitpid(child, &status, 0);
                member.check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child was not refused");
                member.board.meet();
                operation.join();
              }),
              30);
}

TEST(Fork, AChildHasNoStreamsOfItsParents) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  cudaStream_t stream = nullptr;
  ASSERT_EQ(strettoStreamCreate(&stream), ncclSuccess);
  EXPECT_EQ(stretto::testing::inChild([&] {
              ::alarm(10);
              const bool refused = strettoStreamSynchronize(stream) == ncclInvalidArgument &&
                                   strettoStreamDestroy(stream) == ncclInvalidArgument;
              cudaStream_t own = nullptr;
              const bool has = strettoStreamCreate(&own) == ncclSuccess &&
                               strettoStreamSynchronize(own) == ncclSuccess &&
                               strettoStreamDestroy(own) == ncclSuccess;
              return refused && has ? 0 : 1;
            }),
            0);
  EXPECT_EQ(strettoStreamDestroy(stream), ncclSuccess);
}

// A child that lives on keeps nothing open by which peers would take its dead parent for alive.
TEST(Fork, AChildDoesNotHideItsParentsDeath) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  constexpr int kVictim = 1;
  const Board board(3);
  Processes processes(board, connected([&](Member& member) {
                        if (member.rank == kVictim) {
                          const pid_t child = ::fork();
                          if (child == 0) {
                            ::alarm(10);
                            ::pause();
                            ::_exit(0);
                          }
                          member.board.word(2) = static_cast<uint64_t>(child);
                          ++member.board.word(0);
                          while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
                        }
                        const Canary canary;
                        float value = 1;
                        ++member.board.word(0);
                        member.expect(
                            ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr),
                            "sum", ncclRemoteError);
                        const double late = secondsNow() - static_cast<double>(member.board.word(1)) * 1e-6;
                        if (late > canary.limit(kNoticed)) member.complain("told after %.3f s", late);
                        member.expectError("the error", {"rank 1"});
                        ncclCommAbort(std::exchange(member.comm, nullptr));
                      }),
                      30);
  ASSERT_TRUE(eventually(20, [&] { return board.word(0) == 3; }));
  board.word(1) = static_cast<uint64_t>(secondsNow() * 1e6);
  processes.kill(kVictim);
  processes.finish(kVictim);
  ::kill(static_cast<pid_t>(board.word(2).load()), SIGKILL);
}

}  // namespace
}  // namespace stretto
