// Plans for ranks of several hosts, which share no memory.
#include <gtest/gtest.h>

#include <map>

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

// As `stretto tune --hosts` writes it.
const char* const kSlowLinks = R"({"schema": "stretto.table/1", "machine": {},
  "between_hosts": {"hop_us": 80, "message_us": 7.5, "bytes_per_us": 120, "host_bytes_per_us": 120}})";

TEST(Hosts, ArePlannedByTheLinksOfTheTable) {
  const auto table = Table::parse(kSlowLinks);
  ASSERT_TRUE(table.ok()) << lastError();
  Machine machine = exampleMachine();
  machine.hosts = 4;
  const Request small = exampleRequest(Collective::kAllReduce, 8, 4);
  const Request large = exampleRequest(Collective::kAllReduce, 64 << 20, 4);
  const auto predicted = [&](const Request& request) {
    const auto plan = choose(request, machine, table.value(), {});
    return plan.ok() ? plan.value().predictedMicroseconds : 0;
  };
  const double usual = predicted(small), usualOfLarge = predicted(large);
  EXPECT_NE(table.value().absenceOf(small, machine).find("not measured"), std::string::npos);

  machine.hostLinks = table.value().hostLinks();
  EXPECT_TRUE(machine.hostLinks.measured);
  EXPECT_EQ(machine.hostLinks.message, 7.5);
  EXPECT_GT(predicted(small), 80);
  EXPECT_GT(predicted(small), 5 * usual);
  // A ring moves 1.5 times the buffer over each link.
  EXPECT_NEAR(predicted(large), 1.5 * (64 << 20) / 120, 0.2 * 1.5 * (64 << 20) / 120);
  EXPECT_GT(predicted(large), 5 * usualOfLarge);
  EXPECT_NE(table.value().absenceOf(small, machine).find("the table's links"), std::string::npos);
}

// Where a host's card is the bound, algorithms that leave it from every rank take as many times as long.
TEST(Hosts, ShareTheirCard) {
  Machine machine = exampleHosts();
  machine.hostLinks = {20, 3, 120, 120, true};
  const Request request = exampleRequest(Collective::kAllReduce, size_t{64} << 20, 4);
  std::map<Algorithm, double> predicted;
  for (const Candidate& one : explain(request, machine, tableOf(""), {}))
    if (one.possible) predicted[one.plan.algorithm] = one.plan.predictedMicroseconds;
  // Ranks 2 and 3 of the other host have 0 and 1 above them: two edges, of which each carries the buffer both
  // ways.
  EXPECT_NEAR(predicted[Algorithm::kTree], 2.0 * (64 << 20) / 120, 0.1 * 2 * (64 << 20) / 120);
  EXPECT_NEAR(predicted[Algorithm::kRing], 1.5 * (64 << 20) / 120, 0.1 * 1.5 * (64 << 20) / 120);
  EXPECT_NEAR(predicted[Algorithm::kStages], 1.0 * (64 << 20) / 120, 0.1 * (64 << 20) / 120);
}

// Ranks whose links differ would plan differently.
TEST(Hosts, LinksAreInTheHashOfTheTable) {
  const auto one = Table::parse(kSlowLinks);
  std::string text = kSlowLinks;
  const auto other = Table::parse(text.replace(text.rfind("120"), 3, "121"));
  ASSERT_TRUE(one.ok() && other.ok()) << lastError();
  EXPECT_NE(one.value().hash(), other.value().hash());
  EXPECT_NE(one.value().hash(), Table::shipped().value().hash());
}

TEST(Hosts, LinksAloneLeaveTheShippedEntries) {
  const auto table = Table::parse(kSlowLinks);
  ASSERT_TRUE(table.ok()) << lastError();
  EXPECT_EQ(table.value().size(), Table::shipped().value().size());
  std::string text = kSlowLinks;
  text.insert(text.rfind('}'), R"(, "entries": [])");
  const auto empty = Table::parse(text);
  ASSERT_TRUE(empty.ok()) << lastError();
  EXPECT_EQ(empty.value().size(), 0u);
}

TEST(Hosts, LinksOfNonsenseAreRefused) {
  for (
      const char* const wrong : {
          R"("between_hosts": [])",
          R"("between_hosts": {"hop_us": 6, "message_us": 3})",
          R"("between_hosts": {"hop_us": -1, "message_us": 3, "bytes_per_us": 1500, "host_bytes_per_us": 1500})",
          R"("between_hosts": {"hop_us": 6, "message_us": 1e12, "bytes_per_us": 1500, "host_bytes_per_us": 1500})",
          R"("between_hosts": {"hop_us": 6, "message_us": 3, "bytes_per_us": 0, "host_bytes_per_us": 1})",
          R"("between_hosts": {"hop_us": 6, "message_us": 3, "bytes_per_us": "fast", "host_bytes_per_us": 1})",
      }) {
    const std::string text = std::string(R"({"schema": "stretto.table/1", "machine": {}, )") + wrong + "}";
    EXPECT_FALSE(Table::parse(text).ok()) << wrong;
  }
}

// A proxy's turn comes on top of the message, and no proxy is faster than the link.
TEST(Hosts, LinksBoundThoseOfGpus) {
  Machine machine = gpuMachine();
  machine.hosts = 2;
  const auto predicted = [&](size_t bytes) {
    const auto plan = choose(exampleRequest(Collective::kAllReduce, bytes, 2), machine, tableOf(""), {});
    return plan.ok() ? plan.value().predictedMicroseconds : 0;
  };
  const double small = predicted(8), large = predicted(size_t{64} << 20);
  ASSERT_GT(small, 0);
  machine.hostLinks = {80, 3, 120, 120, true};
  EXPECT_GT(predicted(8), small + 70);
  EXPECT_GT(predicted(size_t{64} << 20), 10 * large);
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
