#include "planner/model.hpp"

#include <gtest/gtest.h>

#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

const Descriptor& rowOf(Collective collective, Algorithm algorithm, Protocol protocol = Protocol::kSimple) {
  for (const Descriptor& row : algorithms::descriptors()) {
    if (row.collective == collective && row.algorithm == algorithm && row.protocol == protocol) return row;
  }
  ADD_FAILURE() << "no such row";
  return algorithms::descriptors()[0];
}

double predicted(Algorithm algorithm, size_t bytes, const Machine& machine) {
  const Descriptor& row = rowOf(Collective::kAllReduce, algorithm);
  const Request request = exampleRequest(Collective::kAllReduce, bytes, 2);
  return predict(row, request, machine, preferredChunk(row, request, machine));
}

// Two ranks on two cores (docs/decisions/0003-planner.md). A model that is a third off still orders
// algorithms that differ by more; what lies closer is the measured table's to decide.
TEST(Model, IsNearWhatWasMeasured) {
  struct Measured {
    Algorithm algorithm;
    bool sameProcess;
    size_t bytes;
    double microseconds;
  };
  constexpr size_t kK = 1024;
  constexpr size_t kM = kK * kK;
  constexpr Measured kAll[] = {
      {Algorithm::kTwoShot, false, 256 * kK, 30},  {Algorithm::kTwoShot, false, kM, 145},
      {Algorithm::kTwoShot, false, 16 * kM, 2200}, {Algorithm::kTwoShot, false, 64 * kM, 10500},
      {Algorithm::kOneShot, false, 256 * kK, 31},  {Algorithm::kOneShot, false, kM, 133},
      {Algorithm::kOneShot, false, 16 * kM, 2600}, {Algorithm::kOneShot, false, 64 * kM, 12500},
      {Algorithm::kDirect, true, kM, 54},          {Algorithm::kDirect, true, 16 * kM, 1000},
      {Algorithm::kDirect, true, 64 * kM, 4900},   {Algorithm::kDirect, false, kM, 105},
      {Algorithm::kDirect, false, 16 * kM, 2050},  {Algorithm::kDirect, false, 64 * kM, 11000},
  };
  for (const Measured& one : kAll) {
    Machine machine = exampleMachine(2);
    machine.sameProcess = one.sameProcess;
    machine.reach = true;
    const double ratio = predicted(one.algorithm, one.bytes, machine) / one.microseconds;
    EXPECT_GT(ratio, 0.75) << algorithms::nameOf(one.algorithm) << " " << one.bytes;
    EXPECT_LT(ratio, 1.33) << algorithms::nameOf(one.algorithm) << " " << one.bytes;
  }
}

TEST(Model, TimeGrowsWithBytesAndWithCrowding) {
  for (const Descriptor& row : algorithms::descriptors()) {
    const auto machineOf = row.algorithm == Algorithm::kStages ? exampleHosts : exampleMachine;
    Machine machine = machineOf(8);
    machine.reach = true;
    double before = 0;
    for (size_t bytes = 8; bytes <= size_t{64} << 20; bytes *= 4) {
      const Request request = exampleRequest(row.collective, bytes, 4);
      const uint32_t chunk = 65536;
      const double now = predict(row, request, machine, chunk);
      EXPECT_GT(now, before) << nameOf(row.collective) << " " << algorithms::nameOf(row.algorithm);
      before = now;
      if (row.algorithm == Algorithm::kLocal) continue;
      EXPECT_GT(predict(row, request, machineOf(2), chunk), now);
    }
  }
}

TEST(Model, ChunksKeepToTheirRegions) {
  const Machine machine = exampleMachine();
  const auto chunk = [&](Collective collective, Algorithm algorithm, size_t bytes) {
    return preferredChunk(rowOf(collective, algorithm), exampleRequest(collective, bytes, 4), machine);
  };
  constexpr size_t kBig = size_t{1} << 30;
  EXPECT_EQ(chunk(Collective::kAllReduce, Algorithm::kTwoShot, kBig), machine.slotBytes * 4);
  EXPECT_EQ(chunk(Collective::kAllReduce, Algorithm::kOneShot, kBig), machine.slotBytes);
  EXPECT_EQ(chunk(Collective::kAllGather, Algorithm::kPush, kBig), machine.slotBytes);
  EXPECT_EQ(chunk(Collective::kBroadcast, Algorithm::kChain, kBig), machine.linkChunk);
  EXPECT_EQ(chunk(Collective::kAllReduce, Algorithm::kRing, kBig), machine.linkChunk);
}

TEST(Model, LinksCutMiddleSizesForOverlap) {
  const Machine machine = exampleMachine();
  const auto chunk = [&](size_t bytes) {
    const Descriptor& row = rowOf(Collective::kBroadcast, Algorithm::kChain);
    return preferredChunk(row, exampleRequest(Collective::kBroadcast, bytes, 4), machine);
  };
  EXPECT_EQ(chunk(1), 8192u);
  EXPECT_EQ(chunk(32768), 8192u);
  EXPECT_EQ(chunk(32772), 12288u);
  EXPECT_EQ(chunk(65536), 16384u);
  EXPECT_EQ(chunk(size_t{512} << 10), 131072u);
  EXPECT_EQ(chunk(size_t{1} << 20), 131072u);
}

TEST(Model, OddRegionsGiveChunksOfWholeLines) {
  Machine machine = exampleMachine();
  machine.slotBytes = 1000;
  machine.linkChunk = 130;
  const Request request = exampleRequest(Collective::kAllReduce, 1 << 20, 3);
  EXPECT_EQ(mostChunk(rowOf(Collective::kAllReduce, Algorithm::kOneShot), request, machine), 960u);
  EXPECT_EQ(mostChunk(rowOf(Collective::kAllReduce, Algorithm::kTwoShot), request, machine), 2880u);
  EXPECT_EQ(mostChunk(rowOf(Collective::kAllReduce, Algorithm::kRing), request, machine), 128u);
  EXPECT_EQ(mostChunk(rowOf(Collective::kAllReduce, Algorithm::kLocal), request, machine), 0u);
}

TEST(Model, LargeResultsStreamWhereTheCacheIsNotKnown) {
  constexpr size_t kBound = size_t{3} << 20;
  Machine machine = exampleMachine();
  machine.cacheBytes = 0;
  EXPECT_FALSE(streams(exampleRequest(Collective::kAllReduce, kBound - 1, 4), machine));
  EXPECT_TRUE(streams(exampleRequest(Collective::kAllReduce, kBound, 4), machine));
  EXPECT_FALSE(streams(exampleRequest(Collective::kAllGather, kBound / 4 - 1, 4), machine));
  EXPECT_TRUE(streams(exampleRequest(Collective::kAllGather, kBound / 4, 4), machine));
}

TEST(Model, ResultsStreamWhenTheBuffersOfAllRanksFillHalfOfTheCache) {
  Machine machine = exampleMachine();
  machine.cacheBytes = size_t{32} << 20;
  constexpr size_t kMega = size_t{1} << 20;
  const auto at = [&](Collective collective, size_t bytes, int ranks) {
    return streams(exampleRequest(collective, bytes, ranks), machine);
  };
  EXPECT_FALSE(at(Collective::kAllReduce, 4 * kMega, 2));
  EXPECT_TRUE(at(Collective::kAllReduce, 4 * kMega + 1, 2));
  EXPECT_TRUE(at(Collective::kAllReduce, 4 * kMega, 4));
  EXPECT_FALSE(at(Collective::kAllGather, 2 * kMega, 2)) << "2 MB in and 4 MB out, twice";
  EXPECT_TRUE(at(Collective::kAllGather, 3 * kMega, 2));
  EXPECT_FALSE(at(Collective::kReduceScatter, 2 * kMega, 2));
  EXPECT_TRUE(at(Collective::kReduceScatter, 3 * kMega, 2));
}

TEST(Model, ACacheOfManyCoresIsNotAllThisRanks) {
  constexpr size_t kMega = size_t{1} << 20;
  Machine machine = exampleMachine();
  machine.cacheBytes = 64 * kMega;
  EXPECT_FALSE(streams(exampleRequest(Collective::kAllReduce, 4 * kMega, 2), machine));
  machine.cacheBytes = 300 * kMega;
  EXPECT_TRUE(streams(exampleRequest(Collective::kAllReduce, 4 * kMega, 2), machine));
  EXPECT_FALSE(streams(exampleRequest(Collective::kAllReduce, 2 * kMega, 2), machine));
}

TEST(Model, ObstaclesHaveReasons) {
  Machine bare;
  const auto obstacle = [&](Algorithm algorithm, Protocol protocol, int ranks) {
    return obstacleTo(rowOf(Collective::kAllReduce, algorithm, protocol),
                      exampleRequest(Collective::kAllReduce, 8192, ranks), bare);
  };
  bare.deterministic = true;
  EXPECT_EQ(obstacle(Algorithm::kLocal, Protocol::kSimple, 1), Obstacle::kNone);
  EXPECT_EQ(obstacle(Algorithm::kLocal, Protocol::kSimple, 2), Obstacle::kManyRanks);
  EXPECT_EQ(obstacle(Algorithm::kOneShot, Protocol::kSimple, 1), Obstacle::kOneRank);
  EXPECT_EQ(obstacle(Algorithm::kOneShot, Protocol::kLL, 2), Obstacle::kBytes);
  EXPECT_EQ(obstacle(Algorithm::kOneShot, Protocol::kSimple, 2), Obstacle::kSlots);
  EXPECT_EQ(obstacle(Algorithm::kDirect, Protocol::kSimple, 2), Obstacle::kPeerAccess);
  EXPECT_EQ(obstacle(Algorithm::kRing, Protocol::kSimple, 2), Obstacle::kOrder);
  bare.deterministic = false;
  EXPECT_EQ(obstacle(Algorithm::kRing, Protocol::kSimple, 2), Obstacle::kLinks);
  const Descriptor& lines = rowOf(Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLL);
  const Request request = exampleRequest(Collective::kAllReduce, 8192, 2);
  for (int i = 0; i <= static_cast<int>(Obstacle::kType); ++i) {
    EXPECT_EQ(reasonOf(lines, static_cast<Obstacle>(i), request, bare).empty(), i == 0) << i;
  }
  EXPECT_EQ(reasonOf(lines, Obstacle::kBytes, request, bare), "it carries at most 4096 bytes");
}

}  // namespace
}  // namespace stretto::planner
