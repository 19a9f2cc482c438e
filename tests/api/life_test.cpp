// How communicators are made, split, shrunk, revoked and ended through the C API, and what a wrong step is
// told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "api/calls.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

int rankOf(ncclComm_t comm) {
  int rank = -1;
  ncclCommUserRank(comm, &rank);
  return rank;
}

// ---- Split ------------------------------------------------------------------------------------------------

// Runs among threads and among processes.
class Children : public ::testing::TestWithParam<bool> {
 protected:
  static void run(int ranks, const Body& body) {
    if (!GetParam()) {
      asThreads(ranks, connected(body));
    } else if (!STRETTO_TEST_TSAN) {
      asProcesses(ranks, connected(body));
    }
  }
};

TEST_P(Children, OfASplitAreOrderedByKey) {
  run(5, [](Member& member) {
    ncclComm_t child = nullptr;
    // Colours 0, 1, 0, 1, 0; keys turn the order of the even ones around and are equal for the odd ones.
    const int key = member.rank % 2 == 0 ? 10 - member.rank : 3;
    if (!member.expect(ncclCommSplit(member.comm, member.rank % 2, key, &child, nullptr), "split")) return;
    const int wanted = member.rank % 2 == 0 ? 2 - member.rank / 2 : member.rank / 2;
    if (rankOf(child) != wanted) member.complain("rank %d in the child, not %d", rankOf(child), wanted);
    const int size = sumOfOnes(member, child, "sum of the child");
    if (size != (member.rank % 2 == 0 ? 3 : 2)) member.complain("the child has %d ranks", size);
    member.check(sumOfOnes(member, member.comm, "sum of the parent") == 5, "the parent's sum is wrong");
    member.expect(ncclCommDestroy(child), "destroy the child");
  });
}

TEST_P(Children, WithoutColourAreNone) {
  run(3, [](Member& member) {
    ncclComm_t child = reinterpret_cast<ncclComm_t>(&member);
    const int colour = member.rank == 1 ? NCCL_SPLIT_NOCOLOR : 7;
    if (!member.expect(ncclCommSplit(member.comm, colour, 0, &child, nullptr), "split")) return;
    member.check((child == nullptr) == (member.rank == 1), "a child for the wrong ranks");
    if (child == nullptr) return;
    member.check(sumOfOnes(member, child, "sum") == 2, "a wrong sum");
    member.expect(ncclCommDestroy(child), "destroy");
  });
}

TEST_P(Children, HaveChildrenThatOutliveThem) {
  run(4, [](Member& member) {
    ncclComm_t half = nullptr, same = nullptr;
    if (!member.expect(ncclCommSplit(member.comm, member.rank / 2, 0, &half, nullptr), "split")) return;
    if (!member.expect(ncclCommSplit(half, 0, 0, &same, nullptr), "split again")) return;
    member.expect(ncclCommDestroy(half), "destroy the parent");
    member.check(sumOfOnes(member, same, "sum") == 2, "a wrong sum");
    member.expect(ncclCommDestroy(same), "destroy");
  });
}

// Who is left out of a shrink goes on with the parent; afterwards all split it again.
TEST_P(Children, OfAShrinkLeaveTheParentAsItWas) {
  run(4, [](Member& member) {
    const auto shrinkWithout = [&](int out) {
      if (member.rank == out) return;
      ncclComm_t child = nullptr;
      int excluded[] = {out};
      if (!member.expect(ncclCommShrink(member.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT),
                         "shrink")) {
        return;
      }
      member.check(rankOf(child) == member.rank - (member.rank > out ? 1 : 0), "a wrong rank");
      member.check(sumOfOnes(member, child, "sum of the shrunk") == 3, "a wrong sum");
      member.expect(ncclCommDestroy(child), "destroy");
    };
    shrinkWithout(3);
    shrinkWithout(0);
    shrinkWithout(0);
    member.check(sumOfOnes(member, member.comm, "sum of the parent") == 4, "the parent's sum is wrong");
    ncclComm_t child = nullptr;
    if (!member.expect(ncclCommSplit(member.comm, 0, 0, &child, nullptr), "split")) return;
    member.check(sumOfOnes(member, child, "sum") == 4, "a wrong sum");
    member.expect(ncclCommDestroy(child), "destroy");
  });
}

TEST_P(Children, CanBeMadeOfARevokedParent) {
  run(3, [](Member& member) {
    int value = 1;
    if (member.rank == 2) {
      // The others are stuck in an operation that this rank never enters.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } else {
      std::thread revoker([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
      });
      const ncclResult_t result = ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, member.comm, nullptr);
      member.check(result != ncclSuccess, "an operation without rank 2 succeeded");
      revoker.join();
    }
    if (member.rank == 2) member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
    member.expect(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, member.comm, nullptr), "after it",
                  ncclInvalidUsage);
    member.expectError("the error", {"revoked"});
    member.expect(ncclCommFinalize(member.comm), "finalise", ncclInvalidUsage);
    ncclComm_t child = nullptr;
    if (!member.expect(ncclCommSplit(member.comm, 0, 0, &child, nullptr), "split")) return;
    member.check(sumOfOnes(member, child, "sum") == 3, "a wrong sum");
    member.expect(ncclCommDestroy(child), "destroy");
  });
}

INSTANTIATE_TEST_SUITE_P(Among, Children, ::testing::Bool(),
                         [](const auto& suite) { return suite.param ? "Processes" : "Threads"; });

// A rank dies in the middle of operations; the survivors go on without it.
void goOnWithout(int victim) {
  const Board board(4);
  Processes processes(
      board, connected([victim](Member& member) {
        std::vector<int> values(10000, 0);
        ncclResult_t result = ncclSuccess;
        while (result == ncclSuccess) {
          result = ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, member.comm,
                                 nullptr);
          ++member.board.word(0);
        }
        member.expect(result, "after the death", ncclRemoteError);
        ncclComm_t child = nullptr;
        int excluded[] = {victim};
        if (!member.expect(ncclCommShrink(member.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT),
                           "shrink")) {
          return;
        }
        member.check(sumOfOnes(member, child, "sum of the survivors") == 3, "a wrong sum");
        member.expect(ncclCommDestroy(child), "destroy");
        member.expect(ncclCommAbort(member.comm), "abort the parent");
        member.comm = nullptr;
      }));
  ASSERT_TRUE(eventually(20, [&] { return board.word(0) > 20; }));
  processes.kill(victim);
  processes.finish(victim);
}

TEST(Shrink, GoesOnAfterTheDeathOfTheFirstRank) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  goOnWithout(0);
}

TEST(Shrink, GoesOnAfterTheDeathOfAnotherRank) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  goOnWithout(2);
}

TEST(Shrink, RefusesListsThatMakeNoSense) {
  asThreads(2, connected([](Member& member) {
              if (member.rank == 1) return;
              ncclComm_t child = nullptr;
              const auto shrink = [&](std::vector<int> list, int flags) {
                return ncclCommShrink(member.comm, list.data(), static_cast<int>(list.size()), &child,
                                      nullptr, flags);
              };
              for (const std::vector<int>& list : {std::vector<int>{2}, {-1}, {1, 1}}) {
                member.expect(shrink(list, NCCL_SHRINK_DEFAULT), "a wrong list", ncclInvalidArgument);
                member.expectError("a wrong list", {"ncclCommShrink", "0 to 1"});
              }
              member.expect(shrink({0}, NCCL_SHRINK_DEFAULT), "itself", ncclInvalidArgument);
              member.expectError("itself", {"rank 0", "in the list"});
              member.expect(shrink({1}, 8), "flags", ncclInvalidArgument);
              member.expectError("flags", {"0x8"});
              member.expect(shrink({}, NCCL_SHRINK_DEFAULT), "nobody", ncclInvalidArgument);
              member.check(child == nullptr, "a child was made");
            }));
}

// ---- Configuration ----------------------------------------------------------------------------------------

ncclResult_t initAlone(ncclComm_t* comm, ncclConfig_t* config) {
  ncclUniqueId id;
  const ncclResult_t made = ncclGetUniqueId(&id);
  return made == ncclSuccess ? ncclCommInitRankConfig(comm, 1, id, 0, config) : made;
}

TEST(Config, OfOtherReleasesIsRead) {
  const Watchdog watchdog("configurations", 60);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(initAlone(&comm, nullptr), ncclSuccess) << lastNcclError();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);

  // A short one: what lies behind its end is not looked at.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.blocking = 1;
  config.minCTAs = -77;
  EXPECT_EQ(initAlone(&comm, &config), ncclSuccess) << lastNcclError();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);

  // A long one, of a later release.
  struct {
    ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    int unknown[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  } longer;
  longer.known.size = sizeof longer;
  EXPECT_EQ(initAlone(&comm, &longer.known), ncclSuccess) << lastNcclError();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Padding at the end, where a later release has a member: a program leaves there what it likes.
TEST(Config, PaddingOfOtherReleasesIsNotRead) {
  const Watchdog watchdog("configurations", 60);
  const struct {
    unsigned version;
    size_t size;
    int ncclConfig_t::*member;
  } releases[] = {{NCCL_VERSION(2, 14, 3), 24, &ncclConfig_t::cgaClusterSize},
                  {NCCL_VERSION(2, 30, 4), 96, &ncclConfig_t::graphStreamOrdering}};
  for (const auto& release : releases) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.size = release.size;
    config.version = release.version;
    config.*release.member = 0x5a5a5a5a;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(initAlone(&comm, &config), ncclSuccess) << release.version << ": " << lastNcclError();
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(Config, ThatIsNoneIsRefused) {
  ncclComm_t comm = nullptr;
  const auto refused = [&](auto change, const std::vector<std::string>& words) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    change(config);
    EXPECT_EQ(initAlone(&comm, &config), ncclInvalidArgument);
    for (const std::string& word : words)
      EXPECT_NE(lastNcclError().find(word), std::string::npos) << lastNcclError();
    EXPECT_EQ(comm, nullptr);
  };
  refused([](auto& c) { c.magic = 7; }, {"magic", "NCCL_CONFIG_INITIALIZER"});
  refused([](auto& c) { c.size = 4; }, {"size 4", "NCCL_CONFIG_INITIALIZER"});
  refused([](auto& c) { c.size = 0; }, {"size 0"});
  refused([](auto& c) { c.blocking = 2; }, {"blocking is 2"});
  refused([](auto& c) { c.minCTAs = -3; }, {"minCTAs is -3"});
  refused([](auto& c) { c.splitShare = 9; }, {"splitShare is 9"});
}

TEST(Config, ThatIsOutOfRangeNamesTheMember) {
  const Watchdog watchdog("configurations", 60);
  const struct {
    const char* name;
    int ncclConfig_t::*member;
    std::vector<int> good;
    std::vector<int> bad;
  } kMembers[] = {
      {"blocking", &ncclConfig_t::blocking, {1}, {-1, 2}},
      {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, {0, 8}, {-1, 9}},
      {"minCTAs", &ncclConfig_t::minCTAs, {1, 64}, {0, -3}},
      {"maxCTAs", &ncclConfig_t::maxCTAs, {1, 64}, {0, -3}},
      {"splitShare", &ncclConfig_t::splitShare, {0, 1}, {-1, 2}},
      {"collnetEnable", &ncclConfig_t::collnetEnable, {0, 1}, {-1, 7}},
      {"CTAPolicy", &ncclConfig_t::CTAPolicy, {0, 1, 2, 3}, {-1, 4, 77}},
      {"shrinkShare", &ncclConfig_t::shrinkShare, {0, 1}, {-1, 2}},
      {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, {1, 16}, {0, -3}},
      {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, {1, 64}, {-3, 0, 65}},
      {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, {0, 1}, {-1, 2}},
      {"trafficClass", &ncclConfig_t::trafficClass, {0, 255, -1}, {}},
  };
  for (const auto& one : kMembers) {
    for (const int value : one.good) {
      ncclComm_t comm = nullptr;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.*one.member = value;
      EXPECT_EQ(initAlone(&comm, &config), ncclSuccess)
          << one.name << " " << value << ": " << lastNcclError();
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    for (const int value : one.bad) {
      ncclComm_t comm = nullptr;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.*one.member = value;
      EXPECT_EQ(initAlone(&comm, &config), ncclInvalidArgument) << one.name << " " << value;
      EXPECT_EQ(comm, nullptr);
      const std::string words = std::string(one.name) + " is " + std::to_string(value) + "; it can be ";
      EXPECT_NE(lastNcclError().find(words), std::string::npos) << lastNcclError();
      ncclCommDestroy(comm);
    }
  }
}

TEST(Config, WithItsLeastBlocksAboveItsMostIsRefused) {
  const Watchdog watchdog("configurations", 60);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 5;
  config.maxCTAs = 4;
  EXPECT_EQ(initAlone(&comm, &config), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  ncclCommDestroy(comm);
  EXPECT_NE(lastNcclError().find("minCTAs is 5, more than maxCTAs, which is 4"), std::string::npos)
      << lastNcclError();
  // One alone leaves the other at its default, which gives way.
  for (int ncclConfig_t::*member : {&ncclConfig_t::minCTAs, &ncclConfig_t::maxCTAs}) {
    config = NCCL_CONFIG_INITIALIZER;
    config.*member = 3;
    EXPECT_EQ(initAlone(&comm, &config), ncclSuccess) << lastNcclError();
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  // Behind the end of what the caller's release knows nothing is looked at.
  config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, nvlsCTAs);
  config.nvlsCTAs = config.nChannelsPerNetPeer = config.nvlinkCentricSched = -7;
  EXPECT_EQ(initAlone(&comm, &config), ncclSuccess) << lastNcclError();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// ---- Non-blocking -----------------------------------------------------------------------------------------

bool finishes(const Member& member, ncclComm_t comm, const char* what) {
  ncclResult_t state = ncclInProgress;
  const bool done = eventually(
      30, [&] { return ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress; });
  if (!done || state != ncclSuccess) member.complain("%s: %s", what, ncclGetErrorString(state));
  return done && state == ncclSuccess;
}

TEST(NonBlocking, EverythingIsInProgressAndThenDone) {
  asThreads(3, [](Member& member) {
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no id")) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    member.expect(ncclCommInitRankConfig(&comm, 3, id, member.rank, &config), "init", ncclInProgress);
    if (!member.check(comm != nullptr, "no handle yet") || !finishes(member, comm, "init")) return;
    std::vector<int> values(100000, 1);
    for (int times = 0; times < 5; ++times) {
      member.expect(
          ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, comm, nullptr),
          "sum", ncclInProgress);
    }
    ncclGroupStart();
    int in = 0;
    const int out = member.rank;
    ncclSend(&out, 1, ncclInt32, (member.rank + 1) % 3, comm, nullptr);
    ncclRecv(&in, 1, ncclInt32, (member.rank + 2) % 3, comm, nullptr);
    member.expect(ncclGroupEnd(), "group", ncclInProgress);
    if (!finishes(member, comm, "operations")) return;
    member.check(values == std::vector<int>(100000, 243), "a wrong sum");
    member.check(in == (member.rank + 2) % 3, "a wrong message");
    ncclComm_t child = nullptr;
    member.expect(ncclCommSplit(comm, 0, -member.rank, &child, nullptr), "split", ncclInProgress);
    if (!member.check(child != nullptr, "no child yet") || !finishes(member, child, "split")) return;
    member.check(rankOf(child) == 2 - member.rank, "a wrong rank in the child");
    member.expect(ncclCommFinalize(child), "finalise", ncclInProgress);
    if (!finishes(member, child, "finalise")) return;
    member.expect(ncclCommDestroy(child), "destroy the child");
    member.expect(ncclCommDestroy(comm), "destroy");
  });
}

TEST(NonBlocking, OperationsBeforeTheEndOfInitAreRefused) {
  const Watchdog watchdog("an abort before the initialisation has begun", 20);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  float value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidUsage);
  EXPECT_NE(lastNcclError().find("ncclCommGetAsyncError"), std::string::npos) << lastNcclError();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// ---- Making -----------------------------------------------------------------------------------------------

// Who comes second is told at once; the first still waits for the ranks that it was promised.
void makeWrongly(int ranksMore, int rankStep, const std::vector<std::string>& words) {
  setenv("STRETTO_INIT_TIMEOUT", "1", 1);
  asThreads(2, [&](Member& member) {
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no id")) return;
    const int ranks = 2 + member.rank * ranksMore;
    const ncclResult_t result = ncclCommInitRank(&member.comm, ranks, id, member.rank * rankStep);
    member.check(result != ncclSuccess && member.comm == nullptr, "a communicator was made");
    if (result == ncclInvalidUsage) {
      ++member.board.word(0);
      member.expectError("the error", words);
    }
    member.board.meet();
    member.check(member.board.word(0) > 0, "nobody was told");
  });
  unsetenv("STRETTO_INIT_TIMEOUT");
}

TEST(Making, RanksThatDisagreeAboutTheirNumberAreTold) {
  makeWrongly(1, 1, {"2", "3", "rank 0", "rank 1"});
}

TEST(Making, TwoOfOneRankAreTold) {
  makeWrongly(0, 0, {"rank 0"});
}

TEST(Making, ScalableTakesSeveralNames) {
  asThreads(3, [](Member& member) {
    ncclUniqueId ids[2];
    for (ncclUniqueId& id : ids) {
      if (!member.check(member.board.shareId(member.rank, &id), "no id")) return;
    }
    if (!member.expect(ncclCommInitRankScalable(&member.comm, 3, member.rank, 2, ids, nullptr), "init"))
      return;
    member.check(sumOfOnes(member, member.comm, "sum") == 3, "a wrong sum");
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
}

TEST(Making, WrongArgumentsAreNamed) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  const auto refused = [&](ncclResult_t result, const std::string& words) {
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_NE(lastNcclError().find(words), std::string::npos) << lastNcclError();
    EXPECT_EQ(comm, nullptr);
  };
  refused(ncclGetUniqueId(nullptr), "uniqueId is null");
  refused(ncclCommInitRank(nullptr, 1, id, 0), "comm is null");
  refused(ncclCommInitRank(&comm, 0, id, 0), "0 ranks");
  refused(ncclCommInitRank(&comm, 1025, id, 0), "1025 ranks");
  refused(ncclCommInitRank(&comm, 2, id, 2), "rank 2");
  refused(ncclCommInitRank(&comm, 2, id, -1), "rank -1");
  refused(ncclCommInitAll(nullptr, 2, nullptr), "ncclCommInitAll");
  refused(ncclCommInitAll(&comm, 0, nullptr), "0 communicators");
  refused(ncclCommInitRankScalable(&comm, 2, 0, 0, &id, nullptr), "0 unique ids");
  refused(ncclCommInitRankScalable(&comm, 2, 0, 3, &id, nullptr), "3 unique ids");
  refused(ncclCommInitRankScalable(&comm, 2, 0, 1, nullptr, nullptr), "unique ids");
  std::memset(&id, 0x41, sizeof id);
  EXPECT_NE(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << "what is no unique id was taken";
  EXPECT_FALSE(lastNcclError().empty());
  EXPECT_EQ(comm, nullptr);
}

TEST(Ending, OfNothingIsFine) {
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclInvalidArgument);
  EXPECT_NE(lastNcclError().find("null"), std::string::npos);
}

// A rank that finalises early does not harm operations of the others that do not need it.
TEST(Ending, OneAfterTheOther) {
  asThreads(3, connected([](Member& member) {
              member.check(sumOfOnes(member, member.comm, "sum") == 3, "a wrong sum");
              int value = member.rank;
              if (member.rank == 0) {
                member.expect(ncclCommFinalize(member.comm), "finalise");
                return;
              }
              for (int times = 0; times < 20; ++times) {
                ncclGroupStart();
                ncclSend(&value, 1, ncclInt32, 3 - member.rank, member.comm, nullptr);
                int other = 0;
                ncclRecv(&other, 1, ncclInt32, 3 - member.rank, member.comm, nullptr);
                if (!member.expect(ncclGroupEnd(), "between ranks 1 and 2")) return;
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
            }));
}

}  // namespace
}  // namespace stretto
