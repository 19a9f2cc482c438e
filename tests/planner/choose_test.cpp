#include "planner/choose.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/log.hpp"
#include "base/scoped_variable.hpp"
#include "planner/names.hpp"
#include "planner/planner_examples.hpp"
#include "platform/clock.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

const Table kNoTable = tableOf("");
const Forced kFree;

const Descriptor* descriptorOf(const Request& request, const Plan& plan) {
  for (const Descriptor& row : algorithms::descriptors()) {
    const bool same = row.algorithm == plan.algorithm && row.protocol == plan.protocol;
    if (row.collective == request.collective && same) return &row;
  }
  return nullptr;
}

void expectPossible(const Request& request, const Machine& machine, const Plan& plan) {
  const Descriptor* row = descriptorOf(request, plan);
  ASSERT_NE(row, nullptr) << nameOf(request.collective) << " has no " << algorithms::nameOf(plan.algorithm);
  EXPECT_EQ(obstacleTo(*row, request, machine), Obstacle::kNone)
      << reasonOf(*row, obstacleTo(*row, request, machine), request, machine);
  EXPECT_LE(plan.chunkBytes, mostChunk(*row, request, machine));
  EXPECT_EQ(plan.chunkBytes % 64, 0u);
  EXPECT_EQ(plan.chunkBytes == 0, plan.algorithm == Algorithm::kLocal);
  EXPECT_GE(plan.rings, 1);
  EXPECT_GT(plan.predictedMicroseconds, 0);
}

TEST(Choose, OneRankCopiesWhateverIsForced) {
  for (int i = 0; i < kCollectives; ++i) {
    const Collective collective = static_cast<Collective>(i);
    const Request request = exampleRequest(collective, 4096, 1);
    for (const char* algorithm : {"", "ring"}) {
      const Forced forced = Forced::parse(algorithm, "").value();
      const auto plan = choose(request, exampleMachine(), kNoTable, forced);
      ASSERT_TRUE(plan.ok()) << lastError();
      EXPECT_EQ(plan.value().why, Why::kOnlyOne);
      const bool pointToPoint = collective == Collective::kSend || collective == Collective::kReceive;
      EXPECT_EQ(plan.value().algorithm, pointToPoint ? Algorithm::kFlat : Algorithm::kLocal);
    }
  }
}

TEST(Choose, RanksOutOfBoundsAreRefused) {
  for (const int ranks : {-1, 0, 65}) {
    const auto plan =
        choose(exampleRequest(Collective::kAllReduce, 8, ranks), exampleMachine(), kNoTable, kFree);
    EXPECT_EQ(plan.status().code, Code::kInvalidArgument) << ranks;
  }
}

TEST(Choose, SmallTakesLinesAndLargeTakesShards) {
  const auto chosen = [](size_t bytes, int ranks) {
    return choose(exampleRequest(Collective::kAllReduce, bytes, ranks), exampleMachine(), kNoTable, kFree)
        .value();
  };
  EXPECT_EQ(chosen(8, 2).protocol, Protocol::kLL);
  EXPECT_EQ(chosen(8, 2).why, Why::kModel);
  EXPECT_EQ(chosen(size_t{16} << 20, 2).algorithm, Algorithm::kTwoShot);
  EXPECT_TRUE(chosen(size_t{16} << 20, 2).stream);
  EXPECT_FALSE(chosen(size_t{1} << 20, 2).stream);
  EXPECT_EQ(chosen(size_t{1} << 20, 8).algorithm, Algorithm::kTwoShot);
}

TEST(Choose, ThreadsReadEachOthersMemoryWhenItIsLarge) {
  Machine machine = exampleMachine();
  machine.reach = machine.sameProcess = true;
  const auto plan = choose(exampleRequest(Collective::kAllReduce, 1 << 20, 2), machine, kNoTable, kFree);
  EXPECT_EQ(plan.value().algorithm, Algorithm::kDirect);
}

TEST(Choose, DeterministicKeepsToRankOrder) {
  Machine machine = exampleMachine();
  machine.deterministic = true;
  const auto refused =
      choose(exampleRequest(Collective::kAllReduce, 8, 4), machine, kNoTable, forcedTo("all_reduce", "ring"));
  EXPECT_EQ(refused.status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("rank order"), std::string::npos) << lastError();
}

// Links are all that reduce has, and none of them reduces in rank order.
TEST(Choose, SaysSoWhenNothingIsPossible) {
  Machine machine = exampleMachine();
  machine.linkChunk = 0;  // reduce runs over links only
  const auto plan = choose(exampleRequest(Collective::kReduce, 8, 4), machine, kNoTable, kFree);
  EXPECT_EQ(plan.status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("reduce of 8 bytes by 4 ranks cannot run as planned"), std::string::npos)
      << lastError();
  EXPECT_NE(lastError().find("Possible here: nothing"), std::string::npos) << lastError();
}

TEST(Choose, EveryAlgorithmCanBeForced) {
  for (const Descriptor& row : algorithms::descriptors()) {
    Machine machine = row.algorithm == Algorithm::kStages ? exampleHosts() : exampleMachine();
    machine.reach = true;
    const int ranks = row.algorithm == Algorithm::kLocal ? 1 : 4;
    const Request request = exampleRequest(row.collective, 2048, ranks);
    const Forced forced =
        forcedTo(nameOf(row.collective), algorithms::nameOf(row.algorithm), algorithms::nameOf(row.protocol));
    const auto plan = choose(request, machine, kNoTable, forced);
    ASSERT_TRUE(plan.ok()) << lastError();
    EXPECT_EQ(plan.value().algorithm, row.algorithm);
    EXPECT_EQ(plan.value().protocol, row.protocol);
    EXPECT_EQ(plan.value().why, ranks == 1 ? Why::kOnlyOne : Why::kForced);
    expectPossible(request, machine, plan.value());
  }
}

TEST(Choose, WhatIsForcedAndImpossibleIsRefused) {
  const Machine machine = exampleMachine();
  const Request large = exampleRequest(Collective::kAllReduce, 1 << 20, 4);
  EXPECT_EQ(choose(large, machine, kNoTable, Forced::parse("", "ll").value()).status().code,
            Code::kInvalidUsage);
  EXPECT_EQ(
      lastError(),
      "all_reduce of 1048576 bytes by 4 ranks cannot run as forced; one_shot/ll: it carries at most 4096 "
      "bytes; two_shot/ll: it carries at most 4096 bytes. Possible here: one_shot/simple, "
      "two_shot/simple, ring/simple, tree/simple, pairwise/simple");
  EXPECT_FALSE(choose(large, machine, kNoTable, forcedTo("all_reduce", "direct")).ok());
  EXPECT_NE(lastError().find("direct/simple: some rank cannot read"), std::string::npos) << lastError();
  EXPECT_FALSE(choose(large, machine, kNoTable, forcedTo("all_reduce", "local")).ok());
  EXPECT_TRUE(choose(exampleRequest(Collective::kAllReduce, 4096, 4), machine, kNoTable,
                     Forced::parse("", "ll").value())
                  .ok());
  EXPECT_FALSE(choose(exampleRequest(Collective::kAllReduce, 4097, 4), machine, kNoTable,
                      Forced::parse("", "ll").value())
                   .ok());
}

TEST(Choose, AForcedChunkIsObeyedOrRefused) {
  const Machine machine = exampleMachine();
  const Request request = exampleRequest(Collective::kAllReduce, 1 << 24, 4);
  const auto plan = choose(request, machine, kNoTable, forcedTo("all_reduce", "ring", "", 4096));
  ASSERT_TRUE(plan.ok()) << lastError();
  EXPECT_EQ(plan.value().chunkBytes, 4096u);
  EXPECT_TRUE(choose(request, machine, kNoTable, forcedTo("all_reduce", "ring", "", machine.linkChunk)).ok());
  EXPECT_FALSE(
      choose(request, machine, kNoTable, forcedTo("all_reduce", "ring", "", machine.linkChunk + 64)).ok());
  EXPECT_NE(lastError().find("its chunks are 131072 bytes at most"), std::string::npos) << lastError();
  // Without an algorithm, only those that can take the chunk are asked.
  const auto free = choose(request, machine, kNoTable, forcedTo("all_reduce", "", "", machine.slotBytes * 4));
  ASSERT_TRUE(free.ok()) << lastError();
  EXPECT_EQ(free.value().chunkBytes, machine.slotBytes * 4);
}

TEST(Choose, RingsGatherAsTheMachineSays) {
  const Request request = exampleRequest(Collective::kAllReduce, 1 << 20, 5);
  for (Machine machine : {exampleMachine(), gpuMachine()}) {
    const Plan oneWay = choose(request, machine, kNoTable, forcedTo("all_reduce", "ring")).value();
    EXPECT_EQ(oneWay.directions, Directions::kOneWay);
    machine.directions = Directions::kBothWays;
    const Plan bothWays = choose(request, machine, kNoTable, forcedTo("all_reduce", "ring")).value();
    EXPECT_EQ(bothWays.directions, Directions::kBothWays);
    EXPECT_LT(bothWays.predictedMicroseconds, oneWay.predictedMicroseconds) << "two hops of eight less";
    for (const auto& [collective, algorithm] :
         {std::pair{"reduce_scatter", "ring"}, {"all_reduce", "tree"}}) {
      const Request other = exampleRequest(*collectiveNamed(collective), 1 << 20, 5);
      const auto plan = choose(other, machine, kNoTable, forcedTo(collective, algorithm));
      EXPECT_EQ(plan.value().directions, Directions::kOneWay) << collective << " by " << algorithm;
    }
  }
}

TEST(Choose, TheTableBeatsTheModel) {
  const Request request = exampleRequest(Collective::kAllReduce, 2048, 4);
  const Table table =
      tableOf(entryText(rowText(2048, "tree", "simple", "\"chunk_bytes\": 8192, \"us\": 0.5")));
  const auto plan = choose(request, exampleMachine(), table, kFree);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().algorithm, Algorithm::kTree);
  EXPECT_EQ(plan.value().why, Why::kTable);
  EXPECT_EQ(plan.value().chunkBytes, 8192u);
  EXPECT_FLOAT_EQ(plan.value().predictedMicroseconds, 0.5);
  const auto elsewhere =
      choose(exampleRequest(Collective::kAllReduce, 100000, 4), exampleMachine(), table, kFree);
  EXPECT_EQ(elsewhere.value().why, Why::kModel);
}

TEST(Choose, WhatIsForcedBeatsTheTable) {
  const Request request = exampleRequest(Collective::kAllReduce, 2048, 4);
  const Table table = tableOf(entryText(rowText(2048, "tree", "simple")));
  const auto plan = choose(request, exampleMachine(), table, forcedTo("all_reduce", "ring"));
  EXPECT_EQ(plan.value().algorithm, Algorithm::kRing);
  EXPECT_EQ(plan.value().why, Why::kForced);
}

TEST(Choose, ATablesChunkIsCutToTheRegion) {
  const Table table =
      tableOf(entryText(rowText(1 << 20, "ring", "simple", "\"chunk_bytes\": 1048576, \"us\": 9")));
  const Machine machine = exampleMachine();
  const auto plan = choose(exampleRequest(Collective::kAllReduce, 1 << 20, 4), machine, table, kFree);
  EXPECT_EQ(plan.value().chunkBytes, machine.linkChunk);
}

// 5,000 bytes lie nearer to the row of lines, which cannot carry them.
TEST(Choose, ARowThatCannotServeGivesWayToItsNeighbour) {
  const Table table =
      tableOf(entryText(rowText(4096, "one_shot", "ll") + "," + rowText(16384, "tree", "simple")));
  const auto plan = choose(exampleRequest(Collective::kAllReduce, 5000, 4), exampleMachine(), table, kFree);
  EXPECT_EQ(plan.value().algorithm, Algorithm::kTree);
  EXPECT_EQ(plan.value().why, Why::kTable);
}

TEST(Choose, AnImpossibleRowIsIgnoredWithOneLine) {
  const Table table = tableOf(entryText(rowText(2048, "ring", "simple")));
  Machine machine = exampleMachine();
  machine.deterministic = true;
  ScopedVariable level("NCCL_DEBUG", "INFO");
  ScopedVariable subsystems("NCCL_DEBUG_SUBSYS", "TUNING");
  log::reset();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    const auto plan = choose(exampleRequest(Collective::kAllReduce, 2048, 4), machine, table, kFree);
    EXPECT_EQ(plan.value().why, Why::kModel);
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  level.set(nullptr);
  log::reset();
  EXPECT_NE(text.find("all_reduce by ring at 2048 bytes is not used here"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(Choose, BothEndsOfAMessagePlanAlike) {
  const Table table =
      tableOf(entryText(rowText(1 << 20, "flat", "simple", "\"chunk_bytes\": 8192, \"us\": 9"), "send"));
  for (const Forced& forced : {kFree, forcedTo("receive", "flat", "", 4096)}) {
    for (size_t bytes = 1; bytes <= size_t{1} << 24; bytes *= 2) {
      const auto send = choose(exampleRequest(Collective::kSend, bytes, 4), exampleMachine(), table, forced);
      const auto receive =
          choose(exampleRequest(Collective::kReceive, bytes, 4), exampleMachine(), table, forced);
      ASSERT_TRUE(send.ok() && receive.ok()) << lastError();
      EXPECT_EQ(send.value(), receive.value()) << bytes;
    }
  }
}

// A generator of requests and machines, sensible and not.
class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  size_t below(size_t bound) { return random_() % bound; }
  size_t size(int mostBits) { return random_() >> (64 - 1 - below(static_cast<size_t>(mostBits))); }

  Request request() {
    Request request;
    request.collective = static_cast<Collective>(below(kCollectives));
    request.type = static_cast<DataType>(below(kDataTypes));
    request.op = static_cast<Operator>(below(kOperators));
    request.bytes = below(8) == 0 ? 0 : size(40);
    request.ranks = 1 + static_cast<int>(below(below(2) == 0 ? 8 : 64));
    return request;
  }
  Machine machine() {
    Machine machine;
    machine.cores = static_cast<int>(below(130));
    machine.sameProcess = below(2) == 0;
    machine.reach = below(2) == 0;
    machine.deterministic = below(2) == 0;
    machine.slotBytes = size(32);
    machine.linkChunk = size(32);
    machine.cacheBytes = size(32);
    return machine;
  }
  Forced forced() {
    Forced forced;
    const auto rows = algorithms::descriptors();
    for (int i = 0; i < 3; ++i) {
      const Descriptor& row = rows[below(rows.size())];
      const size_t chunk = below(2) == 0 ? 0 : size(20) / 64 * 64;
      (void)forced.force(nameOf(row.collective), below(4) == 0 ? "" : algorithms::nameOf(row.algorithm),
                         below(2) == 0 ? "" : algorithms::nameOf(row.protocol), chunk, 0);
    }
    return forced;
  }
  std::string table() {
    std::string entries;
    for (const Descriptor& row : algorithms::descriptors()) {
      if (row.algorithm == Algorithm::kLocal || row.collective == Collective::kReceive || below(3) == 0)
        continue;
      const std::string ranks = std::to_string(2 + below(7));
      const std::string rest = "\"ranks\": " + ranks +
                               ", \"cores\": 64, \"same_process\": " + (below(2) == 0 ? "true" : "false") +
                               ", \"reach\": " + (below(2) == 0 ? "true" : "false");
      const std::string rows =
          rowText(1 + size(12), algorithms::nameOf(row.algorithm), algorithms::nameOf(row.protocol)) + "," +
          rowText((1 << 13) + size(30), algorithms::nameOf(row.algorithm), algorithms::nameOf(row.protocol),
                  "\"chunk_bytes\": 1048576, \"us\": 3");
      append(entries, entryText(rows, nameOf(row.collective), rest.c_str()));
    }
    return entries;
  }

 private:
  std::mt19937_64 random_;
};

TEST(ChooseProperty, NeverPlansTheImpossibleAndNeverDisobeys) {
  Random random(20261121);
  int planned = 0;
  int refused = 0;
  int measured = 0;
  for (int round = 0; round < 400; ++round) {
    const Table table = tableOf(random.table());
    for (int i = 0; i < 200; ++i) {
      const Request request = random.request();
      const Machine machine = random.machine();
      const Forced forced = random.below(2) == 0 ? kFree : random.forced();
      const auto plan = choose(request, machine, table, forced);
      if (!plan.ok()) {
        EXPECT_EQ(plan.status().code, Code::kInvalidUsage);
        ++refused;
        continue;
      }
      ++planned;
      measured += plan.value().why == Why::kTable;
      expectPossible(request, machine, plan.value());
      const Forced::Choice& choice = forced.of(request.collective);
      if (request.ranks > 1 && choice.any()) {
        EXPECT_EQ(plan.value().why, Why::kForced);
        EXPECT_TRUE(!choice.algorithm || *choice.algorithm == plan.value().algorithm);
        EXPECT_TRUE(!choice.protocol || *choice.protocol == plan.value().protocol);
        EXPECT_TRUE(choice.chunkBytes == 0 || choice.chunkBytes == plan.value().chunkBytes);
      }
      EXPECT_EQ(choose(request, machine, table, forced).value(), plan.value()) << "the same again";
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(planned, 10000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(measured, 100);
}

// Ranks on different sockets may see different caches, and must still plan alike.
TEST(ChooseProperty, TheCacheDecidesStreamingOnly) {
  Random random(11);
  for (int i = 0; i < 20000; ++i) {
    const Request request = random.request();
    Machine machine = random.machine();
    auto plan = choose(request, machine, kNoTable, kFree);
    machine.cacheBytes = random.size(32);
    auto other = choose(request, machine, kNoTable, kFree);
    ASSERT_EQ(plan.ok(), other.ok());
    plan.value().stream = other.value().stream;
    EXPECT_EQ(plan.value(), other.value());
  }
}

TEST(ChooseProperty, RefusesOnlyWhenNothingAllowedIsPossible) {
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    const Request request = random.request();
    const Machine machine = random.machine();
    bool any = false;
    for (const Descriptor& row : algorithms::descriptors()) {
      any |= row.collective == request.collective && obstacleTo(row, request, machine) == Obstacle::kNone;
    }
    EXPECT_EQ(choose(request, machine, kNoTable, kFree).ok(), any);
  }
}

// The bound is generous because other work may share the cores; the number is printed.
TEST(ChooseCost, ATableLookUpIsQuick) {
  std::string entries;
  for (const char* collective : {"all_reduce", "broadcast"}) {
    for (int ranks = 2; ranks <= 64; ++ranks) {
      std::string rows;
      for (size_t bytes = 8; bytes <= size_t{1} << 28; bytes *= 2) {
        append(rows, rowText(bytes, "tree", "simple"));
      }
      const std::string rest = "\"ranks\": " + std::to_string(ranks) +
                               ", \"cores\": 64, \"same_process\": false, \"reach\": false";
      append(entries, entryText(rows, collective, rest.c_str()));
    }
  }
  const Table table = tableOf(entries);
  ASSERT_EQ(table.size(), 126u);
  const Machine machine = exampleMachine(64);
  const auto nanoseconds = [&](const Table& measured, Why why) {
    double best = 1e9;
    for (int round = 0; round < 20; ++round) {
      const uint64_t begin = platform::monotonicNanoseconds();
      for (int i = 0; i < 1000; ++i) {
        const Request request = exampleRequest(Collective::kAllReduce, size_t{8} << (i % 20), 2 + i % 60);
        EXPECT_EQ(choose(request, machine, measured, kFree).value().why, why);
      }
      best = std::min(best, static_cast<double>(platform::monotonicNanoseconds() - begin) / 1000);
    }
    return best;
  };
  const double byTable = nanoseconds(table, Why::kTable);
  const double byModel = nanoseconds(kNoTable, Why::kModel);
  printf("choose: %.0f ns by the table, %.0f ns by the model\n", byTable, byModel);
  EXPECT_LT(byTable, 2000);
  EXPECT_LT(byModel, 20000);
}

// Tokens are not cut where the norm is part of the exchange.
TEST(Choose, AForcedChunkHoldsAToken) {
  Request request = exampleRequest(Collective::kAllReduceAddRmsNorm, 1 << 20, 4);
  request.tokenBytes = 16384;
  const auto forcedTo = [&](const char* algorithm, size_t chunkBytes) {
    Forced forced;
    EXPECT_TRUE(forced.force("all_reduce_add_rms_norm", algorithm, "chunks", chunkBytes, 0).ok());
    return choose(request, exampleMachine(), tableOf(""), forced);
  };
  for (const char* algorithm : {"one_shot", "two_shot"}) {
    const auto whole = forcedTo(algorithm, 16384);
    ASSERT_TRUE(whole.ok()) << lastError();
    EXPECT_EQ(whole.value().chunkBytes, 16384u);
    EXPECT_FALSE(forcedTo(algorithm, 8192).ok());
    EXPECT_NE(lastError().find("a token is 16384 bytes, and its chunks hold whole tokens"), std::string::npos)
        << lastError();
  }
  EXPECT_TRUE(forcedTo("pairwise", 8192).ok()) << lastError();
}

}  // namespace
}  // namespace stretto::planner
