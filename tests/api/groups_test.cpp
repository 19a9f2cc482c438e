// Groups: one thread that serves several ranks, calls that run together or not at all.
#include <gtest/gtest.h>

#include <cmath>

#include "api/calls.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

// All ranks of one job in this thread.
class OneThread : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(comms_, kRanks, nullptr), ncclSuccess) << lastNcclError();
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << lastNcclError();
  }
  // Adds an all-reduce on every rank to the open group.
  void sumAll(std::vector<std::vector<int>>& values) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ncclAllReduce(values[rank].data(), values[rank].data(), values[rank].size(), ncclInt32,
                              ncclSum, comms_[rank], nullptr),
                ncclSuccess)
          << lastNcclError();
    }
  }
  static std::vector<std::vector<int>> ones(size_t count) {
    return std::vector<std::vector<int>>(kRanks, std::vector<int>(count, 1));
  }

  Watchdog watchdog_{"a group", 60};
  ncclComm_t comms_[kRanks] = {};
};

TEST_F(OneThread, KnowsItsRanks) {
  for (int rank = 0; rank < kRanks; ++rank) {
    int number = -1;
    EXPECT_EQ(ncclCommUserRank(comms_[rank], &number), ncclSuccess);
    EXPECT_EQ(number, rank);
    EXPECT_EQ(ncclCommCount(comms_[rank], &number), ncclSuccess);
    EXPECT_EQ(number, kRanks);
    EXPECT_EQ(ncclCommCuDevice(comms_[rank], &number), ncclSuccess);
    EXPECT_EQ(number, 0);
    EXPECT_EQ(strettoCommDevice(comms_[rank], &number), ncclSuccess);
    EXPECT_EQ(number, -1);
  }
}

TEST_F(OneThread, RunsOneCollectiveOnEveryRank) {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{300000}}) {
    auto values = ones(count);
    ncclGroupStart();
    sumAll(values);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
    for (const auto& each : values) EXPECT_EQ(each, std::vector<int>(count, kRanks));
  }
}

TEST_F(OneThread, RunsManyCollectivesInOrder) {
  auto values = ones(50);
  ncclGroupStart();
  for (int times = 0; times < 5; ++times) sumAll(values);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  for (const auto& each : values) EXPECT_EQ(each, std::vector<int>(50, 1024));
}

TEST_F(OneThread, SendsBetweenItsRanks) {
  std::vector<std::vector<int>> in(kRanks, std::vector<int>(100000)), out;
  for (int rank = 0; rank < kRanks; ++rank) out.emplace_back(100000, rank + 1);
  ncclGroupStart();
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    ncclRecv(in[at].data(), 100000, ncclInt32, (rank + 1) % kRanks, comms_[rank], nullptr);
    ncclSend(out[at].data(), 100000, ncclInt32, (rank + 3) % kRanks, comms_[rank], nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(in[rank], out[(rank + 1) % kRanks]);
}

TEST_F(OneThread, OnlyTheOutermostEndRunsTheGroup) {
  auto values = ones(10);
  ncclGroupStart();
  ncclGroupStart();
  sumAll(values);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(values, ones(10)) << "run at an inner end";
  ncclGroupStart();
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(values, ones(10)) << "run at an inner end";
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  EXPECT_EQ(values[0], std::vector<int>(10, kRanks));
}

TEST_F(OneThread, ABadCallSpoilsItsGroupAndNoOther) {
  auto values = ones(10);
  ncclGroupStart();
  sumAll(values);
  EXPECT_EQ(ncclBroadcast(values[0].data(), values[0].data(), 10, ncclInt32, 9, comms_[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NE(lastNcclError().find("group"), std::string::npos) << lastNcclError();
  EXPECT_NE(lastNcclError().find("root 9"), std::string::npos) << lastNcclError();
  EXPECT_EQ(values, ones(10)) << "part of a spoilt group ran";
  ncclGroupStart();
  sumAll(values);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  EXPECT_EQ(values[3], std::vector<int>(10, kRanks));
}

TEST_F(OneThread, SimulationForetellsAndRunsNothing) {
  auto values = ones(100000);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclGroupStart();
  sumAll(values);
  ASSERT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess) << lastNcclError();
  EXPECT_GT(info.estimatedTime, 0.1f);
  EXPECT_LT(info.estimatedTime, 1e7f);
  EXPECT_EQ(values, ones(100000));
  const float one = info.estimatedTime;

  ncclGroupStart();
  sumAll(values);
  sumAll(values);
  ASSERT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess) << lastNcclError();
  EXPECT_NEAR(info.estimatedTime, 2 * one, one * 0.01);

  // Inside another group it only closes its level.
  ncclGroupStart();
  ncclGroupStart();
  sumAll(values);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess);
  EXPECT_EQ(values, ones(100000));
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  EXPECT_EQ(values[2], std::vector<int>(100000, kRanks));
}

TEST_F(OneThread, SimulationOfASpoiltGroupSaysSo) {
  auto values = ones(10);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclGroupStart();
  sumAll(values);
  EXPECT_EQ(ncclBroadcast(values[0].data(), values[0].data(), 10, ncclInt32, 9, comms_[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
  // What cannot be planned fails, and is forgotten.
  for (ncclComm_t comm : comms_) {
    ASSERT_EQ(strettoCommForce(comm, "all_reduce", "one_shot", "ll", 0, 0), ncclSuccess) << lastNcclError();
  }
  auto many = ones(100000);
  ncclGroupStart();
  sumAll(many);
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
  ncclGroupStart();
  sumAll(values);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  EXPECT_EQ(many, ones(100000)) << "operations of a simulated group were kept";
}

TEST_F(OneThread, SplitsItsRanksTogether) {
  ncclComm_t children[kRanks] = {};
  ncclGroupStart();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ncclCommSplit(comms_[rank], rank % 2, -rank, &children[rank], nullptr), ncclSuccess)
        << lastNcclError();
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  for (int rank = 0; rank < kRanks; ++rank) {
    int number = -1;
    ASSERT_NE(children[rank], nullptr);
    EXPECT_EQ(ncclCommUserRank(children[rank], &number), ncclSuccess);
    EXPECT_EQ(number, rank < 2 ? 1 : 0);
    EXPECT_EQ(ncclCommDestroy(children[rank]), ncclSuccess);
  }
}

TEST(Group, EndWithoutStartIsRefused) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(lastNcclError().find("ncclGroupStart"), std::string::npos);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
}

TEST(Group, SimulationChecksWhatItIsGiven) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  info.magic = 5;
  ncclGroupStart();
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  EXPECT_NE(lastNcclError().find("NCCL_SIM_INFO_INITIALIZER"), std::string::npos);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << "the failed call spoils the group";
  ncclGroupStart();
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclSuccess);
}

TEST(Group, MakesCommunicatorsTogether) {
  const Watchdog watchdog("communicators made in a group", 60);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comms[3] = {};
  ncclGroupStart();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ncclCommInitRank(&comms[rank], 3, id, rank), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  float values[3] = {1, 2, 3};
  ncclGroupStart();
  for (int rank = 0; rank < 3; ++rank) {
    ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat32, ncclAvg, comms[rank], nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  for (const float value : values) EXPECT_EQ(value, 2);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Two jobs of the same two ranks, each rank a thread, in one group: no order between the jobs may matter.
TEST(Group, SpansCommunicatorsOfDifferentJobs) {
  asThreads(2, connected([](Member& member) {
              ncclComm_t first = member.comm;
              connected([&](Member& inner) {
                float a = 1, b = 10;
                ncclGroupStart();
                ncclComm_t order[2] = {first, inner.comm};
                if (inner.rank == 1) std::swap(order[0], order[1]);
                for (ncclComm_t comm : order) {
                  float* value = comm == first ? &a : &b;
                  ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, comm, nullptr);
                }
                inner.expect(ncclGroupEnd(), "end");
                inner.check(a == 2 && b == 20, "wrong sums");
              })(member);
              member.comm = first;
            }));
}

TEST(Group, AFailedInitialisationIsTold) {
  const Watchdog watchdog("an initialisation that fails", 60);
  setenv("STRETTO_INIT_TIMEOUT", "0.3", 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comms[2] = {};
  ncclGroupStart();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ncclCommInitRank(&comms[rank], 3, id, rank), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclRemoteError);
  EXPECT_NE(lastNcclError().find("missing"), std::string::npos) << lastNcclError();
  EXPECT_NE(lastNcclError().find("2"), std::string::npos) << lastNcclError();
  EXPECT_EQ(comms[0], nullptr);
  EXPECT_EQ(comms[1], nullptr);
  unsetenv("STRETTO_INIT_TIMEOUT");
}

}  // namespace
}  // namespace stretto
