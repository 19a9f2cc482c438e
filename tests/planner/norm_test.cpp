// All-reduce with RMSNorm between GPUs: when the norm is part of the exchange, and by how many blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "algorithms/norm.hpp"
#include "algorithms/shares.hpp"
#include "planner/choose.hpp"
#include "planner/cuda_model.hpp"
#include "planner/model.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

Request normOf(size_t tokens, size_t tokenBytes, int ranks, DataType type = DataType::kBfloat16) {
  Request request{Collective::kAllReduceAddRmsNorm, type, Operator::kSum, tokens * tokenBytes, ranks};
  request.tokenBytes = tokenBytes;
  return request;
}

const Descriptor& rowOf(const Plan& plan) {
  const auto rows = algorithms::descriptors(algorithms::Device::kCuda);
  return *std::find_if(rows.begin(), rows.end(), [&](const Descriptor& row) {
    return row.collective == Collective::kAllReduceAddRmsNorm && row.algorithm == plan.algorithm &&
           row.protocol == plan.protocol;
  });
}

NormForm formOf(const Plan& plan, const Request& request, const Machine& machine) {
  return normFormOf(rowOf(plan), request, machine, {plan.blocks, plan.chunkBytes});
}

TEST(ChooseNorm, FewTokensAreFusedWithABlockEach) {
  for (const size_t tokens : {1, 5, 32}) {
    const auto plan = choose(normOf(tokens, 8192, 2), gpuMachine(), tableOf(""), {});
    ASSERT_TRUE(plan.ok()) << lastError();
    EXPECT_FALSE(rowOf(plan.value()).normApart);
    EXPECT_EQ(plan.value().algorithm, Algorithm::kOneShot);
    EXPECT_EQ(plan.value().blocks, tokens);
  }
}

TEST(ChooseNorm, TokensThatLinesDoNotHoldGoApart) {
  Machine machine = gpuMachine();
  machine.lamportBytes = 4096;
  const auto plan = choose(normOf(2, 8192, 4), machine, tableOf(""), {});
  ASSERT_TRUE(plan.ok()) << lastError();
  EXPECT_TRUE(rowOf(plan.value()).normApart);
  int refused = 0;
  for (const Candidate& each : explain(normOf(2, 8192, 4), machine, tableOf(""), {})) {
    if (each.reason.find("a token is 8192 bytes, and its lines hold 4096") != std::string::npos) ++refused;
  }
  EXPECT_EQ(refused, 2);
}

// In rounds a block would wait for each of its tokens; then the fastest all-reduce and a norm take less.
TEST(ChooseNorm, MoreTokensThanLinesHoldGoApart) {
  const Machine machine = gpuMachine();
  for (const size_t tokens : {512, 2048}) {
    const Request request = normOf(tokens, 8192, 2);
    const auto plan = choose(request, machine, tableOf(""), {});
    ASSERT_TRUE(plan.ok()) << lastError();
    EXPECT_EQ(plan.value().algorithm, Algorithm::kOneShot);
    EXPECT_EQ(plan.value().protocol, Protocol::kLamport);
    EXPECT_EQ(formOf(plan.value(), request, machine) == NormForm::kApart, tokens == 2048);
    const char* const words = tokens == 2048 ? "; the norm is a pass of its own" : "; fused with the norm";
    for (const Candidate& each : explain(request, machine, tableOf(""), {})) {
      if (each.chosen) {
        EXPECT_NE(each.reason.find(words), std::string::npos) << each.reason;
      }
    }
  }
}

// ---- What is priced is what runs
// ------------------------------------------------------------------------------

Machine machineOf(int ranks) {
  Machine machine = gpuMachine();
  const size_t whole = (ranks > 2 && algorithms::takesTurns(ranks) ? size_t{264} : size_t{66}) << 10;
  const size_t parts = ranks == 2 ? 1 : 2 * std::bit_ceil(static_cast<size_t>(ranks - 1));
  machine.lamportBytes = std::max(size_t{1024}, whole / parts);
  return machine;
}

// What a block is given where so many share the tokens, by the numbers that the engine cuts an operation
// with, and how many times it goes through its lines: the algorithm's own loop.
struct Given {
  size_t tokens;
  size_t rounds;
};
Given givenBy(const Plan& plan, const Request& request, const Machine& machine) {
  NormArguments norm{};
  norm.hidden = request.tokenBytes / sizeOf(request.type);
  Arguments all;
  all.elementBytes = sizeOf(request.type);
  all.count = request.bytes / all.elementBytes;
  all.chunkBytes = plan.chunkBytes;
  all.norm = &norm;
  all = algorithms::withShares(all, plan.blocks);
  const size_t lines = (request.tokenBytes + 15) / 16;
  const int owners = plan.algorithm == Algorithm::kTwoShot ? request.ranks : 1;
  Arguments block = all;
  block.count = all.largest;
  return {all.largest / norm.hidden,
          algorithms::TokenChunks(block, machine.lamportBytes / 16 / lines, owners).size()};
}

// What the model would ask for if it knew of this plan alone: the price of the form that runs.
void expectPriceOfWhatRuns(const Plan& plan, const Request& request, const Machine& machine) {
  const Descriptor& row = rowOf(plan);
  if (row.normApart || plan.algorithm == Algorithm::kLocal) return;
  const Given given = givenBy(plan, request, machine);
  const auto tokens = request.bytes / request.tokenBytes;
  const bool fits = given.rounds == 1;
  const bool isWhole = request.tokenBytes % 16 == 0 && request.tokenBytes <= 16384;
  const NormForm runs = fits && isWhole                                  ? NormForm::kInRegisters
                        : !fits && algorithms::takesTurns(request.ranks) ? NormForm::kApart
                                                                         : NormForm::kInLines;
  EXPECT_EQ(formOf(plan, request, machine), runs);
  Machine asPlanned = machine;
  asPlanned.blocks = plan.blocks;
  EXPECT_FLOAT_EQ(plan.predictedMicroseconds,
                  static_cast<float>(predict(row, request, asPlanned, plan.chunkBytes)));
  if (runs == NormForm::kApart || machine.blocks != 0) return;
  // No owner has two tokens of a block where others have none, and no block has none.
  const size_t owners = plan.algorithm == Algorithm::kTwoShot ? static_cast<size_t>(request.ranks) : 1;
  const auto channels = static_cast<size_t>(machine.channels);
  EXPECT_LE(plan.blocks, channels);
  EXPECT_LE(static_cast<size_t>(plan.blocks - 1) * owners, tokens - 1);
  if (plan.blocks < channels) {
    EXPECT_LE(given.tokens, owners);
  }
}

// Every candidate of the planner, not only the one that it takes.
void expectPricesOfWhatRuns(const Request& request, const Machine& machine) {
  for (const Candidate& each : explain(request, machine, tableOf(""), {})) {
    if (each.possible) expectPriceOfWhatRuns(each.plan, request, machine);
  }
}

class NormTokens : public ::testing::TestWithParam<int> {};

TEST_P(NormTokens, WhatRunsIsWhatWasPriced) {
  const int ranks = GetParam();
  for (const size_t hidden : {64, 513, 1000, 2048, 4096, 5120, 8192}) {
    for (size_t tokens = 1; tokens <= 600; ++tokens) {
      const Request request = normOf(tokens, 2 * hidden, ranks);
      SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(hidden));
      Machine machine = machineOf(ranks);
      expectPricesOfWhatRuns(request, machine);
      machine.blocks = static_cast<int>(tokens % 40) + 1;  // as users ask for them
      if (tokens % 7 == 0) expectPricesOfWhatRuns(request, machine);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NormTokens, ::testing::Range(2, 9));

// A table may ask for fewer blocks than there are, which then have more tokens each.
TEST(ChooseNorm, ATablesBlocksAreThoseOfTheWords) {
  const Machine machine = machineOf(2);
  const Request request = normOf(64, 8192, 2);
  for (const int blocks : {0, 4, 64}) {
    const std::string rest = "\"chunk_bytes\": 0, \"us\": 1.5, \"blocks\": " + std::to_string(blocks);
    const Table table = tableOf(
        gpuEntry(rowText(request.bytes, "one_shot", "lamport", rest.c_str()), {}, "all_reduce_add_rms_norm"));
    const auto plan = choose(request, machine, table, {});
    ASSERT_TRUE(plan.ok()) << lastError();
    ASSERT_EQ(plan.value().why, Why::kTable);
    ASSERT_EQ(plan.value().blocks, blocks == 0 ? 64 : blocks);
    const bool isApart = blocks == 4;  // sixteen tokens of 8 KB each: 66 KB of lines hold eight
    const char* const words = isApart ? "; the norm is a pass of its own" : "; fused with the norm";
    for (const Candidate& each : explain(request, machine, table, {})) {
      if (!each.chosen) continue;
      EXPECT_NE(each.reason.find(words), std::string::npos) << blocks << ": " << each.reason;
    }
  }
}

TEST(ChooseNorm, OneRankHasAKernelOfItsOwn) {
  const auto plan = choose(normOf(3, 8192, 1), gpuMachine(), tableOf(""), {});
  ASSERT_TRUE(plan.ok()) << lastError();
  EXPECT_EQ(plan.value().algorithm, Algorithm::kLocal);
}

TEST(ChooseNorm, OtherTypesHaveNoForm) {
  EXPECT_FALSE(choose(normOf(3, 8192, 2, DataType::kInt32), gpuMachine(), tableOf(""), {}).ok());
}

}  // namespace
}  // namespace stretto::planner
