// All-reduce with RMSNorm between GPUs: when the norm is part of the exchange, and by how many blocks.
#include <gtest/gtest.h>

#include <algorithm>

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
    EXPECT_EQ(normIsApart(rowOf(plan.value()), request, machine), tokens == 2048);
    const char* const words = tokens == 2048 ? "; the norm is a pass of its own" : "; fused with the norm";
    for (const Candidate& each : explain(request, machine, tableOf(""), {})) {
      if (each.chosen) {
        EXPECT_NE(each.reason.find(words), std::string::npos) << each.reason;
      }
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
