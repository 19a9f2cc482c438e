// Every collective through the C API: every algorithm and protocol, type and operator, with counts, offsets,
// chunks, roots and in-place forms drawn by a fixed generator, against the rank-order oracle. On CPU ranks,
// or, with STRETTO_TEST_DEVICE=cuda, on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/scoped_variable.hpp"
#include "harness/conformance.hpp"
#include "harness/norm_sum.hpp"
#include "harness/share.hpp"
#include "primitives/cuda/reducer_kind.hpp"
#include "primitives/host/norm.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Descriptor;
using algorithms::Protocol;

constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000, 4097};
constexpr size_t kMostCount = 4097;
constexpr size_t kChunks[] = {0, 64, 128, 1024, 4096, 65536};
constexpr size_t kMostChunks = 300;        // that one case is cut into
constexpr size_t kMostDeviceChunk = 1024;  // that every device window can carry
constexpr size_t kAreaBytes = size_t{4} << 20;

// What needs windows is for windows_test.cpp and pulls_test.cpp.
bool moves(const Descriptor& row) {
  return row.protocol != Protocol::kCopy && !algorithms::isPull(row.protocol) &&
         row.collective != Collective::kSend && row.collective != Collective::kReceive;
}

std::vector<const Descriptor*> rowsFor(int ranks) {
  std::vector<const Descriptor*> rows;
  const auto device = testsOnDevice() ? algorithms::Device::kCuda : algorithms::Device::kHost;
  for (const Descriptor& row : algorithms::descriptors(device)) {
    const bool local = row.algorithm == algorithms::Algorithm::kLocal;
    // Two ranks have no lines for a second phase.
    const bool tooFew = testsOnDevice() && ranks == 2 && row.algorithm == algorithms::Algorithm::kTwoShot &&
                        row.protocol != Protocol::kSimple;
    const int hosts = testedHosts();
    const bool isReached =
        (!testsBetweenHosts() && hosts == 1) || ranks == 1 || algorithms::usesLinks(row.algorithm);
    const bool isPlaced =
        row.algorithm != algorithms::Algorithm::kStages || (hosts > 1 && ranks % hosts == 0 && ranks > hosts);
    if (moves(row) && local == (ranks == 1) && !tooFew && isReached && isPlaced) rows.push_back(&row);
  }
  return rows;
}

// The chunk that is drawn, or the planner's where it would cut the case into too many.
size_t chunkFor(const Descriptor& row, size_t bytes, size_t drawn) {
  if (testsOnDevice() && drawn > kMostDeviceChunk) return 0;
  const bool chunked = row.protocol == Protocol::kSimple && row.algorithm != algorithms::Algorithm::kLocal;
  return chunked && drawn != 0 && bytes / drawn <= kMostChunks ? drawn : 0;
}

Case draw(const Descriptor& row, const Dataset& data, size_t count, Random& random) {
  Case one;
  one.row = &row;
  one.data = &data;
  const size_t element = sizeOf(data.type);
  // On GPUs only Lamport lines do not take turns.
  const bool any = row.mostBytes == 0 || (testsOnDevice() && row.protocol != Protocol::kLamport);
  one.count = any ? count : std::min(count, row.mostBytes / element);
  one.inPlace = row.collective != Collective::kAllToAll && random() % 2 == 0;
  one.twice = !row.rankOrder || random() % 8 == 0;
  one.sendOffset = random() % 3 == 0 ? 0 : random() % 64;
  one.receiveOffset = random() % 3 == 0 ? 0 : random() % 64;
  one.chunkBytes = chunkFor(row, one.count * element, kChunks[random() % std::size(kChunks)]);
  // A chunk holds a token at least.
  if (row.collective == Collective::kAllReduceAddRmsNorm && one.chunkBytes != 0)
    one.chunkBytes = std::max(one.chunkBytes, hiddenOf(one.count) * element);
  if (row.needsPeerAccess && random() % 2 == 0) one.shared = random();
  one.root = static_cast<int>(random() % static_cast<uint64_t>(data.ranks));
  return one;
}

// Tokens are summed, and of three types. Lamport lines are for sums and averages of the common floats.
bool serves(const Descriptor& row, const Dataset& data) {
  if (row.collective == Collective::kAllReduceAddRmsNorm)
    return hasNorm(data.type) && data.op == static_cast<int>(Operator::kSum);
  if (row.protocol != Protocol::kLamport) return true;
  const auto op = data.op == kPreMulSum ? Operator::kSum : static_cast<Operator>(data.op);
  return cuda::isFixed(data.type, op);
}

// By type and operator.
using Datasets = std::vector<Dataset>;
Datasets makeDatasets(int ranks, size_t elements) {
  Datasets all;
  for (const DataType type : kTypes) {
    for (int op = 0; op < kOps; ++op) all.push_back(makeDataset(type, op, ranks, elements));
  }
  return all;
}

// Every row with every type and operator, each time with the next count; `share`: one in so many of them.
std::vector<Case> drawAll(int ranks, const Datasets& datasets, size_t share) {
  std::vector<Case> cases;
  Random random(static_cast<uint64_t>(ranks));
  size_t turn = 0;
  for (const Descriptor* row : rowsFor(ranks)) {
    for (const Dataset& data : datasets) {
      if (!isReduction(row->collective) && data.op != 0) continue;
      if (!serves(*row, data)) continue;
      const int draws = isReduction(row->collective) ? 2 : 8;
      for (int drawn = 0; drawn < draws; ++drawn) {
        ++turn;
        const Case one = draw(*row, data, kCounts[(turn + turn / 71) % std::size(kCounts)], random);
        if (random() % share == 0) cases.push_back(one);
      }
    }
  }
  return cases;
}

// About one case in so many.
size_t shareOf(size_t usual) {
  return usual * static_cast<size_t>(testShare());
}

Body runAll(const std::vector<Case>& cases) {
  return connected([&cases](Member& member) {
    for (const Case& one : cases) {
      if (!runCase(member, one)) return;
    }
  });
}

// Where these tests are for GPUs, they need one.
template <typename Parameter>
class Conformance : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (testsOnDevice() && !deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

class EveryCollective : public Conformance<int> {};

TEST_P(EveryCollective, ComputesWhatItMustAmongThreads) {
  const int ranks = GetParam();
  const Datasets datasets = makeDatasets(ranks, kMostCount * static_cast<size_t>(ranks));
  asThreads(Board(ranks, kAreaBytes), runAll(drawAll(ranks, datasets, shareOf(1))), 300);
}

class EveryCollectiveOfProcesses : public EveryCollective {};

TEST_P(EveryCollectiveOfProcesses, ComputesWhatItMust) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const int ranks = GetParam();
  const Datasets datasets = makeDatasets(ranks, kMostCount * static_cast<size_t>(ranks));
  asProcesses(Board(ranks, kAreaBytes), runAll(drawAll(ranks, datasets, shareOf(4))), 300);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryCollective, ::testing::Values(1, 2, 3, 4, 5, 8));
INSTANTIATE_TEST_SUITE_P(Ranks, EveryCollectiveOfProcesses, ::testing::Values(1, 2, 3, 4, 5, 8));

// Messages of many chunks, on every row.
class Large : public Conformance<int> {
 protected:
  static constexpr size_t kElements = 300001;
  std::vector<Case> cases(const Datasets& datasets) const {
    std::vector<Case> all;
    Random random(300);
    const int ranks = GetParam();
    size_t rows = 0;
    for (const Descriptor* row : rowsFor(ranks)) {
      const Dataset& data = datasets[2 * rows % datasets.size()];
      if (!serves(*row, data)) continue;
      ++rows;
      const bool blocks = sendBlocks(row->collective, ranks) + receiveBlocks(row->collective, ranks) > 2;
      Case one = draw(*row, data, blocks ? kElements / static_cast<size_t>(ranks) : kElements, random);
      all.push_back(one);
      if (isShortened() && rows % 2 == 0) continue;
      one.inPlace = !one.inPlace && row->collective != Collective::kAllToAll;
      one.chunkBytes = chunkFor(*row, one.count * sizeOf(data.type), 16384);
      all.push_back(one);
    }
    return all;
  }
  Datasets datasets() const {
    Datasets all;
    all.push_back(makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), GetParam(), kElements));
    all.push_back(makeDataset(DataType::kBfloat16, static_cast<int>(Operator::kAvg), GetParam(), kElements));
    all.push_back(makeDataset(DataType::kInt64, static_cast<int>(Operator::kMax), GetParam(), kElements));
    return all;
  }
};

TEST_P(Large, Compute) {
  const Datasets data = datasets();
  asThreads(Board(GetParam(), kAreaBytes), runAll(cases(data)), 120);
}

class LargeOfProcesses : public Large {};

TEST_P(LargeOfProcesses, Compute) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const Datasets data = datasets();
  asProcesses(Board(GetParam(), kAreaBytes), runAll(cases(data)), 120);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Large, ::testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, LargeOfProcesses, ::testing::Values(2, 4));

// STRETTO_RINGS: data goes round several rings at once; STRETTO_RING_GATHER: and finished blocks both ways.
class Rings : public Conformance<std::tuple<int, int, const char*>> {};

TEST_P(Rings, ComputeWhatTheyMust) {
  const auto [ranks, rings, gather] = GetParam();
  const Datasets datasets = makeDatasets(ranks, kMostCount * static_cast<size_t>(ranks));
  std::vector<Case> cases = drawAll(ranks, datasets, shareOf(1));
  std::erase_if(cases, [](const Case& one) { return one.row->algorithm != algorithms::Algorithm::kRing; });
  ASSERT_FALSE(cases.empty());
  const ScopedVariable number("STRETTO_RINGS", std::to_string(rings).c_str());
  const ScopedVariable directions("STRETTO_RING_GATHER", gather);
  asThreads(Board(ranks, kAreaBytes), runAll(cases), 120);
}

constexpr auto kNameOfRings = [](const auto& suite) {
  const auto [ranks, rings, gather] = suite.param;
  return std::to_string(ranks) + "_by_" + std::to_string(rings) + "_" + gather;
};
INSTANTIATE_TEST_SUITE_P(OneWay, Rings,
                         ::testing::Combine(::testing::Values(2, 5, 8), ::testing::Values(2, 4),
                                            ::testing::Values("one_way")),
                         kNameOfRings);
INSTANTIATE_TEST_SUITE_P(BothWays, Rings,
                         ::testing::Combine(::testing::Values(2, 3, 4, 5, 8), ::testing::Values(1, 2, 4),
                                            ::testing::Values("both_ways")),
                         kNameOfRings);

// Ranks that would wait for blocks from different sides are told so when they connect.
TEST(RingGather, IsAlikeOnAllRanks) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  if (testsOnDevice()) GTEST_SKIP() << "in host memory only";
  asProcesses(3, [](Member& member) {
    const ScopedVariable gather("STRETTO_RING_GATHER", member.rank == 1 ? "both_ways" : "one_way");
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    member.expect(ncclCommInitRank(&member.comm, member.ranks(), id, member.rank), "init", ncclInvalidUsage);
    member.expectError("init", {"STRETTO_RING_GATHER", "both_ways", "one_way"});
  });
}

TEST(RingGather, IsOneOfTwo) {
  if (testsOnDevice() && !deviceThere()) GTEST_SKIP() << "no GPU";
  const ScopedVariable gather("STRETTO_RING_GATHER", "sideways");
  asThreads(1, [](Member& member) {
    ncclUniqueId id;
    member.expect(ncclGetUniqueId(&id), "id");
    member.expect(ncclCommInitRank(&member.comm, 1, id, 0), "init", ncclInvalidUsage);
    member.expectError("init", {"STRETTO_RING_GATHER=sideways", "one_way or both_ways"});
  });
}

// The bound that other orders are held to says something about most elements.
TEST(Datasets, MostElementsAreTold) {
  for (const DataType type : kTypes) {
    for (int op = 0; op < kOps; ++op) {
      const double told = makeDataset(type, op, 4, 2000).told();
      const bool narrow = type == DataType::kFloat8e4m3 || op == static_cast<int>(Operator::kProd);
      EXPECT_GT(told, narrow ? 0.15 : 0.5) << nameOf(type) << " operator " << op;
    }
  }
}

// The sum of e4m3's 1 and of three times half a unit in its last place: 1.1875, which rounds to 1.25. Added
// one after the other to the 1 and rounded each time they vanish.
class NarrowSum : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;
  static constexpr uint8_t kOne = 0x38, kHalf = 0x18, kSum = 0x3a;
  static void expect(const char* algorithm, bool once, const char* deterministic = nullptr) {
    const ScopedVariable variable("STRETTO_DETERMINISTIC", deterministic);
    asThreads(kRanks, connected([&](Member& member) {
                if (algorithm != nullptr) {
                  member.expect(strettoCommForce(member.comm, "reduce", algorithm, nullptr, 0, 0), "force");
                }
                // The root, where the chain ends, has the 1's neighbour last: all orders are tried.
                int roundedOnce = 0;
                for (int place = 0; place < kRanks; ++place) {
                  const std::vector<uint8_t> in(5000, member.rank == place ? kOne : kHalf);
                  std::vector<uint8_t> out(5000);
                  member.expect(ncclReduce(in.data(), out.data(), in.size(), ncclFloat8e4m3, ncclSum, 0,
                                           member.comm, nullptr),
                                "reduce");
                  roundedOnce += std::count(out.begin(), out.end(), kSum) == 5000 ? 1 : 0;
                }
                if (member.rank != 0 || (roundedOnce == kRanks) == once) return;
                member.complain("%d of %d sums were rounded once", roundedOnce, kRanks);
              }));
  }
};

TEST_F(NarrowSum, IsRoundedOnceOrAtEachHopAsNcclHSays) {
  if (testsOnDevice()) GTEST_SKIP() << "in host memory only";
  expect("flat", true);
  expect("tree", false);
  expect("chain", false);
  expect(nullptr, true, "1");
}

// STRETTO_DETERMINISTIC=1: what can run gives the oracle's bits, what cannot is refused, and nothing is lost:
// every collective still has a way.
TEST(Deterministic, EveryAlgorithmGivesTheSameBits) {
  if (testsOnDevice()) GTEST_SKIP() << "in host memory only";
  constexpr int kRanks = 3;
  setenv("STRETTO_DETERMINISTIC", "1", 1);
  const Datasets datasets = makeDatasets(kRanks, 1000 * kRanks);
  asThreads(
      Board(kRanks, kAreaBytes), connected([&](Member& member) {
        Random random(5);
        for (const Descriptor* row : rowsFor(kRanks)) {
          for (const Dataset& data : datasets) {
            if (!isFloating(data.type) || !serves(*row, data)) continue;
            const Case one = draw(*row, data, 1000, random);
            if (row->rankOrder) {
              if (!runCase(member, one)) return;
              continue;
            }
            const char* name = nameOf(row->collective);
            member.expect(strettoCommForce(member.comm, name, nameOf(row->algorithm), nullptr, 0, 0),
                          "force");
            float in[4] = {}, out[4] = {};
            const ncclResult_t result =
                row->collective == Collective::kReduce
                    ? ncclReduce(in, out, 1, ncclFloat32, ncclSum, 0, member.comm, nullptr)
                : row->collective == Collective::kAllReduce
                    ? ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, member.comm, nullptr)
                    : ncclReduceScatter(in, out, 1, ncclFloat32, ncclSum, member.comm, nullptr);
            member.expect(result, one.describe().c_str(), ncclInvalidUsage);
            member.expectError("refusal", {"STRETTO_DETERMINISTIC", name, nameOf(row->algorithm)});
          }
        }
        float in[4] = {1, 2, 3, 4}, out[4] = {};
        for (const char* name : {"all_reduce", "reduce_scatter", "reduce"}) {
          member.expect(strettoCommForce(member.comm, name, nullptr, nullptr, 0, 0), "let go");
        }
        member.expect(ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, member.comm, nullptr), "all-reduce");
        member.expect(ncclReduce(in, out, 1, ncclFloat32, ncclSum, 1, member.comm, nullptr), "reduce");
        member.expect(ncclReduceScatter(in, out, 1, ncclFloat32, ncclSum, member.comm, nullptr), "scatter");
      }));
  unsetenv("STRETTO_DETERMINISTIC");
}

}  // namespace
}  // namespace stretto
