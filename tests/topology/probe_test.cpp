#include "topology/probe.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "base/scoped_variable.hpp"
#include "harness/watchdog.hpp"
#include "topology/made_up_host.hpp"

namespace stretto::topology {
namespace {

using stretto::testing::MadeUpHost;
using stretto::testing::ScopedVariable;

std::string textOf(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string golden(const char* name) {
  return textOf(std::filesystem::path(STRETTO_TEST_GOLDEN) / name);
}

// Two sockets of four cores; two cores share an L2, a socket shares an L3; a third node is memory alone.
void twoSockets(const MadeUpHost& host) {
  host.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Example Processor 9000\nflags\t: none\n");
  host.file("proc/meminfo", "MemTotal:       50331648 kB\nMemFree: 7 kB");
  host.file("sys/devices/system/node/online", "0-2");
  host.node(0, "0-3", 16777216);
  host.node(1, "4-7", 16777216);
  host.node(2, "", 16777216);
  for (int core = 0; core < 8; ++core) {
    const std::string alone = std::to_string(core);
    const int pair = core / 2 * 2;
    host.cache(core, {0, "1", "Data", "48K", alone});
    host.cache(core, {1, "1", "Instruction", "32K", alone});
    host.cache(core, {2, "2", "Unified", "2048K", std::to_string(pair) + "-" + std::to_string(pair + 1)});
    host.cache(core, {3, "3", "Unified", "32M", core < 4 ? "0-3" : "4-7"});
  }
}

TEST(Probe, TwoSocketsAreTheGoldenFile) {
  const MadeUpHost host;
  twoSockets(host);
  EXPECT_EQ(toJson(probe(host.sources({0, 1, 2, 3, 4, 5, 6, 7}))), golden("two_sockets.json"));
}

TEST(Probe, AffinityLimitsWhatIsLookedAt) {
  const MadeUpHost host;
  twoSockets(host);
  const Facts facts = probe(host.sources({5}));
  EXPECT_EQ(facts.usable, Cores{5});
  EXPECT_EQ(facts.nodes.size(), 3u) << "nodes are the host's, whatever the affinity";
  ASSERT_EQ(facts.caches.size(), 3u);
  EXPECT_EQ(facts.caches[1].cores, (Cores{4, 5}));
  EXPECT_EQ(lastLevelCacheBytes(facts), uint64_t{32} << 20);
}

TEST(Probe, AnEmptyFileSystemIsTheGoldenFile) {
  const MadeUpHost host;
  EXPECT_EQ(toJson(probe(host.sources({2, 3}))), golden("bare.json"));
}

TEST(Probe, NonsenseIsAsIfAbsent) {
  const MadeUpHost host;
  host.file("proc/meminfo", "MemTotal: many kB");
  host.file("proc/cpuinfo", "model name");
  host.file("sys/devices/system/node/online", "0-1,x");
  host.cache(0, {0, "many", "Data", "48K", "0"});
  host.cache(0, {1, "1", "Data", "48Q", "0"});
  host.cache(0, {2, "2", "Unified", "1M", "0-99999999"});
  host.cache(0, {3, "3", "Unified", "99999999999999999999M", "0"});
  host.file("sys/devices/system/cpu/cpu1/cache/index0/type", std::string(1 << 20, 'x'));
  Facts facts = probe(host.sources({0, 1}));
  EXPECT_EQ(facts.memoryBytes, 0u);
  EXPECT_TRUE(facts.caches.empty());
  ASSERT_EQ(facts.nodes.size(), 1u);
  EXPECT_EQ(facts.nodes[0].cores, (Cores{0, 1}));
  EXPECT_TRUE(fromJson(toJson(facts)).ok()) << lastError();
}

TEST(Probe, ThisHostMakesSense) {
  const Facts facts = probe();
  EXPECT_FALSE(facts.usable.empty());
  EXPECT_TRUE(std::is_sorted(facts.usable.begin(), facts.usable.end()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    EXPECT_EQ(facts.usable.size(), static_cast<size_t>(CPU_COUNT(&set)));
  }
  const auto read = fromJson(toJson(facts));
  ASSERT_TRUE(read.ok()) << lastError();
  EXPECT_EQ(read.value(), facts);
}

TEST(LoadFacts, ReadsTheFileAndDumpsWhatItFound) {
  const MadeUpHost host;
  twoSockets(host);
  host.file("topology.json", golden("two_sockets.json"));
  const ScopedVariable file("STRETTO_TOPO_FILE", host.path("topology.json").c_str());
  const ScopedVariable dump("STRETTO_TOPO_DUMP", host.path("dump.json").c_str());
  const auto found = loadFacts();
  ASSERT_TRUE(found.ok()) << lastError();
  EXPECT_EQ(found.value().processor, "Example Processor 9000");
  EXPECT_EQ(textOf(host.path("dump.json")), golden("two_sockets.json"));
}

TEST(LoadFacts, AFileThatCannotBeUsedIsAnError) {
  const MadeUpHost host;
  ScopedVariable file("STRETTO_TOPO_FILE", "/nonexistent/topology.json");
  EXPECT_FALSE(loadFacts().ok());
  EXPECT_NE(lastError().find("/nonexistent/topology.json"), std::string::npos);
  host.file("bad.json", "{\n\"schema\": }");
  file.set(host.path("bad.json").c_str());
  EXPECT_EQ(loadFacts().status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("bad.json (STRETTO_TOPO_FILE): JSON, line 2"), std::string::npos) << lastError();
  file.set(nullptr);
  const ScopedVariable dump("STRETTO_TOPO_DUMP", "/nonexistent/dump.json");
  EXPECT_EQ(loadFacts().status().code, Code::kSystem);
}

TEST(LoadFacts, FromOrToAPipeFailsAtOnce) {
  const stretto::testing::Watchdog watchdog("a pipe with nobody at its other end", 20);
  const MadeUpHost host;
  const std::string pipe = host.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ScopedVariable file("STRETTO_TOPO_FILE", pipe.c_str());
  EXPECT_EQ(loadFacts().status().code, Code::kInvalidUsage);
  file.set(nullptr);
  const ScopedVariable dump("STRETTO_TOPO_DUMP", pipe.c_str());
  EXPECT_EQ(loadFacts().status().code, Code::kSystem);
  EXPECT_NE(lastError().find("STRETTO_TOPO_DUMP: cannot write " + pipe), std::string::npos) << lastError();
}

// In children, because a process finds its facts once.
TEST(FactsOfThisProcess, AreFoundOnce) {
  EXPECT_EXIT(
      {
        const auto first = facts();
        setenv("STRETTO_TOPO_FILE", "/nonexistent/topology.json", 1);
        const auto second = facts();
        _exit(first.ok() && second.ok() && first.value() == second.value() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(FactsOfThisProcess, KeepTheReasonOfAFailure) {
  EXPECT_EXIT(
      {
        setenv("STRETTO_TOPO_FILE", "/nonexistent/topology.json", 1);
        const bool first = facts().ok();
        setLastError("");
        const bool second = facts().ok();
        const bool said = lastError().find("/nonexistent/topology.json") != std::string::npos;
        _exit(!first && !second && said ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stretto::topology
