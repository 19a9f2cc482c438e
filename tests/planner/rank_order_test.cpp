// What nccl.h promises of sums of 16- and 8-bit floats: by default they are accumulated in fp32, in rank
// order, and rounded once, but for a reduce to one rank in host memory. Conformance tests hold the algorithms
// that are said to keep rank order to it, bit for bit; here is which of them the planner takes.
#include <gtest/gtest.h>

#include "planner/choose.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

constexpr DataType kNarrow[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8e4m3,
                                DataType::kFloat8e5m2};
constexpr Collective kSums[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce};
constexpr size_t kMostReducedInOrder = 1024;

bool keepsRankOrder(Collective collective, const Plan& plan) {
  for (const algorithms::Descriptor& row : algorithms::allDescriptors()) {
    if (row.collective != collective || row.algorithm != plan.algorithm || row.protocol != plan.protocol)
      continue;
    return row.rankOrder;
  }
  ADD_FAILURE() << "no such algorithm";
  return false;
}

std::vector<Machine> hosts(int ranks) {
  std::vector<Machine> all;
  for (const int cores : {1, 2, 8, 16, 64}) {
    for (const auto& [sameProcess, reach] : {std::pair(false, false), {false, true}, {true, true}}) {
      Machine machine;
      machine.cores = cores;
      machine.sameProcess = sameProcess;
      machine.reach = reach;
      machine.linkChunk = 65536;
      machine.slotBytes =
          std::max<size_t>(4096, (size_t{1} << 20) / static_cast<size_t>(ranks) / 4096 * 4096);
      machine.cacheBytes = size_t{32} << 20;
      all.push_back(machine);
    }
  }
  return all;
}

std::vector<Machine> gpus() {
  std::vector<Machine> all;
  for (const char* name : {"NVIDIA H200", "another"}) {
    for (const Links links : {Links::kNvlink, Links::kPcie, Links::kUnknown, Links::kSameGpu}) {
      Machine machine = stretto::testing::gpuMachine(name);
      machine.gpus.links = links;
      all.push_back(machine);
    }
  }
  return all;
}

// `see` gets every request for a sum of narrow floats and its plan by the shipped table.
template <typename See>
void forEverySum(const Machine& machine, int ranks, See see) {
  const auto table = Table::shipped();
  ASSERT_TRUE(table.ok()) << lastError();
  for (const Collective collective : kSums) {
    for (const DataType type : kNarrow) {
      for (size_t bytes = 2; bytes <= size_t{1} << 30; bytes *= 2) {
        Request request = stretto::testing::exampleRequest(collective, bytes, ranks);
        request.type = type;
        const auto plan = choose(request, machine, table.value(), {});
        ASSERT_TRUE(plan.ok()) << lastError();
        see(request, keepsRankOrder(collective, plan.value()));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(NarrowSums, AreInRankOrderByDefault) {
  size_t roundedOnTheWay = 0;
  for (const int ranks : {2, 3, 4, 5, 8, 16, 32, 64}) {
    for (const Machine& machine : hosts(ranks)) {
      forEverySum(machine, ranks, [&](const Request& request, bool inOrder) {
        const bool may =
            request.collective == Collective::kReduce && ranks > 2 && request.bytes > kMostReducedInOrder;
        EXPECT_TRUE(inOrder || may) << nameOf(request.collective) << " of " << request.bytes << " bytes by "
                                    << ranks << " ranks on " << machine.cores << " cores";
        roundedOnTheWay += inOrder ? 0 : 1;
      });
    }
    for (const Machine& machine : gpus()) {
      forEverySum(machine, ranks, [&](const Request& request, bool inOrder) {
        EXPECT_TRUE(inOrder) << nameOf(request.collective) << " of " << request.bytes << " bytes by " << ranks
                             << " GPUs, " << machine.gpus.name;
      });
    }
  }
  EXPECT_GT(roundedOnTheWay, 0u) << "nccl.h makes an exception that is none";
}

TEST(NarrowSums, AreInRankOrderOfWhateverSizeIfDeterministic) {
  for (const int ranks : {2, 3, 8, 64}) {
    for (Machine machine : hosts(ranks)) {
      machine.deterministic = true;
      forEverySum(machine, ranks, [&](const Request& request, bool inOrder) {
        EXPECT_TRUE(inOrder) << nameOf(request.collective) << " of " << request.bytes << " bytes";
      });
    }
  }
}

}  // namespace
}  // namespace stretto::planner
