// Plans for ranks of several hosts, which share no memory.
#include <gtest/gtest.h>

#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

TEST(Hosts, HaveLinksAlone) {
  Machine machine = exampleMachine();
  machine.hosts = 2;
  machine.reach = false;
  for (const bool deterministic : {false, true}) {
    machine.deterministic = deterministic;
    for (int i = 0; i < kCollectives; ++i) {
      for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{1} << 20, size_t{1} << 30}) {
        const Request request = exampleRequest(static_cast<Collective>(i), bytes, 4);
        const auto plan = choose(request, machine, tableOf(""), {});
        ASSERT_TRUE(plan.ok()) << nameOf(request.collective) << ": " << lastError();
        EXPECT_TRUE(algorithms::usesLinks(plan.value().algorithm)) << nameOf(request.collective);
      }
    }
  }
}

TEST(Hosts, AreTheReasonOfWhatCannotRun) {
  Machine machine = exampleMachine();
  machine.hosts = 3;
  for (const Candidate& one :
       explain(exampleRequest(Collective::kAllReduce, 4096, 4), machine, tableOf(""), {})) {
    const bool isLocal = one.plan.algorithm == Algorithm::kLocal;
    // Stages need as many ranks on each host.
    const bool isStaged = one.plan.algorithm == Algorithm::kStages;
    EXPECT_EQ(one.possible, algorithms::usesLinks(one.plan.algorithm) && !isStaged);
    EXPECT_FALSE(isStaged && one.reason.empty());
    if (one.possible || isLocal || isStaged) continue;
    EXPECT_NE(one.reason.find("they are on 3 hosts"), std::string::npos) << one.reason;
  }
}

// What was measured where all share memory says nothing of them.
TEST(Hosts, AreInNoTable) {
  Machine machine = exampleMachine();
  const Table table = tableOf(entryText(rowText(65536, "tree", "simple")));
  const Request request = exampleRequest(Collective::kAllReduce, 65536, 4);
  ASSERT_NE(table.find(request, machine).nearest, nullptr);
  machine.hosts = 2;
  EXPECT_EQ(table.find(request, machine).nearest, nullptr);
  EXPECT_NE(table.absenceOf(request, machine).find("several hosts"), std::string::npos);
}

// One host does not pay for what several need.
TEST(Hosts, OfOneHaveBetterThanPairs) {
  for (const int ranks : {2, 3, 4, 8, 16, 64}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
      for (size_t bytes = 4; bytes <= size_t{1} << 30; bytes *= 4) {
        Machine machine = exampleMachine();
        for (const bool reach : {false, true}) {
          machine.reach = reach;
          const auto plan = choose(exampleRequest(collective, bytes, ranks), machine, tableOf(""), {});
          ASSERT_TRUE(plan.ok()) << lastError();
          EXPECT_NE(plan.value().algorithm, Algorithm::kPairwise) << ranks << " ranks, " << bytes;
        }
      }
    }
  }
}

}  // namespace
}  // namespace stretto::planner
