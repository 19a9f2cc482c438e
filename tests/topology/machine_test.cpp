// What is found out of the machine that the test runs on, by files or by the system's calls.
#include <gtest/gtest.h>

#include <algorithm>

#include "platform/machine.hpp"
#include "topology/probe.hpp"

namespace stretto::topology {
namespace {

TEST(ThisMachine, HasMemoryAndAProcessor) {
  const Facts found = probe();
  EXPECT_FALSE(found.hostname.empty());
  EXPECT_GT(found.memoryBytes, uint64_t{256} << 20);
  EXPECT_FALSE(found.usable.empty());
}

TEST(ThisMachine, HasItsUsableCoresInNodes) {
  const Facts found = probe();
  ASSERT_FALSE(found.nodes.empty());
  for (const int core : found.usable) EXPECT_GE(nodeOf(found, core), 0) << "core " << core;
  for (const Node& node : found.nodes) EXPECT_TRUE(std::is_sorted(node.cores.begin(), node.cores.end()));
  uint64_t inNodes = 0;
  for (const Node& node : found.nodes) inNodes += node.memoryBytes;
  EXPECT_LE(inNodes, found.memoryBytes + found.memoryBytes / 8) << "nodes have no more than the machine";
}

TEST(ThisMachine, HasCachesOfSomeBytesForSomeCores) {
  const Facts found = probe();
  for (const Cache& cache : found.caches) {
    EXPECT_GE(cache.level, 1);
    EXPECT_GT(cache.bytes, 0u);
    EXPECT_FALSE(cache.cores.empty());
  }
  EXPECT_TRUE(std::is_sorted(found.caches.begin(), found.caches.end(),
                             [](const Cache& a, const Cache& b) { return a.level < b.level; }));
  printf("%s, %zu nodes, %zu caches, the last level's %llu bytes\n", found.processor.c_str(),
         found.nodes.size(), found.caches.size(),
         static_cast<unsigned long long>(lastLevelCacheBytes(found)));
}

TEST(ThisMachine, IsWhatTheSystemSaysWhereItHasCallsForThat) {
  const Facts found = probe();
  const platform::MachineFacts said = platform::describeMachine();
#if defined(_WIN32)
  ASSERT_FALSE(said.nodes.empty());
  EXPECT_GT(said.memoryBytes, 0u);
#endif
  if (said.nodes.empty()) GTEST_SKIP() << "this system says it in files";
  EXPECT_EQ(found.memoryBytes, said.memoryBytes);
  EXPECT_EQ(found.nodes.size(), said.nodes.size());
  EXPECT_EQ(found.caches.size(), said.caches.size());
  for (size_t i = 0; i < said.nodes.size(); ++i) EXPECT_EQ(found.nodes[i].cores, said.nodes[i].cores);
}

TEST(ThisMachine, IsTheSameInWordsAndBack) {
  const Facts found = probe();
  const auto read = fromJson(toJson(found));
  ASSERT_TRUE(read.ok()) << lastError();
  EXPECT_EQ(read.value(), found);
}

}  // namespace
}  // namespace stretto::topology
