// Plans by copy engines: only into windows, where the model or a measurement says that nothing is faster.
#include <gtest/gtest.h>

#include "base/version.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

Request windowed(Collective collective, size_t bytes, int ranks = 2) {
  Request request = exampleRequest(collective, bytes, ranks);
  request.windowed = true;
  return request;
}

Plan planned(const Request& request, const std::string& entries = "", const Forced& forced = {}) {
  const auto plan = choose(request, gpuMachine(), tableOf(entries), forced);
  EXPECT_TRUE(plan.ok()) << lastError();
  return plan.ok() ? plan.value() : Plan{};
}

std::string gatherEntry(const char* algorithm, const char* protocol, const char* us) {
  const std::string rest = std::string(R"("chunk_bytes": 0, "blocks": 0, "us": )") + us;
  const std::string row = rowText(size_t{64} << 20, algorithm, protocol, rest.c_str());
  const std::string keys = std::string(R"("ranks": 2, "same_process": false, "gpu": "NVIDIA H200", )") +
                           R"("links": "nvlink", "version": ")" + kLibraryVersion + "\"";
  return entryText(row, "all_gather", keys.c_str());
}

constexpr size_t kLarge = size_t{64} << 20;

TEST(Copies, AreForLargeMessagesIntoWindows) {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
    EXPECT_EQ(planned(windowed(collective, kLarge)).protocol, Protocol::kCopy) << nameOf(collective);
    EXPECT_NE(planned(windowed(collective, 65536)).protocol, Protocol::kCopy) << nameOf(collective);
    EXPECT_NE(planned(exampleRequest(collective, kLarge, 2)).protocol, Protocol::kCopy) << nameOf(collective);
  }
  EXPECT_EQ(planned(windowed(Collective::kAllReduce, size_t{1} << 29)).protocol, Protocol::kCopy);
}

// Below 64 MB a chunk costs more than its copies save.
TEST(Copies, OfAnAllReduceNeedLargeChunks) {
  EXPECT_NE(planned(windowed(Collective::kAllReduce, size_t{1} << 27)).protocol, Protocol::kCopy);
  EXPECT_EQ(planned(windowed(Collective::kAllReduce, size_t{1} << 28)).protocol, Protocol::kCopy);
  EXPECT_NE(planned(windowed(Collective::kAllReduce, size_t{1} << 29, 4)).protocol, Protocol::kCopy);
  EXPECT_EQ(planned(windowed(Collective::kAllReduce, size_t{1} << 30, 4)).protocol, Protocol::kCopy);
}

// A root that sends to several peers one after the other does not gain from it.
TEST(Copies, DoNotBroadcastToMany) {
  EXPECT_NE(planned(windowed(Collective::kBroadcast, kLarge, 8)).protocol, Protocol::kCopy);
}

TEST(Copies, AreRefusedWithoutAWindow) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_gather", "push", "copy", 0, 0).ok()) << lastError();
  EXPECT_EQ(planned(windowed(Collective::kAllGather, 64), "", forced).protocol, Protocol::kCopy);
  EXPECT_EQ(planned(windowed(Collective::kAllGather, 64), "", forced).chunkBytes, 0u);
  EXPECT_FALSE(
      choose(exampleRequest(Collective::kAllGather, kLarge, 2), gpuMachine(), tableOf(""), forced).ok());
  EXPECT_NE(lastError().find("push/copy: its results do not go into a window"), std::string::npos)
      << lastError();
}

TEST(Copies, OfBlocksHaveNoChunksAndNoBlocks) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_gather", "push", "copy", 64, 0).ok()) << lastError();
  EXPECT_FALSE(choose(windowed(Collective::kAllGather, kLarge), gpuMachine(), tableOf(""), forced).ok());
  EXPECT_NE(lastError().find("it has no chunks"), std::string::npos) << lastError();
  ASSERT_TRUE(forced.force("all_gather", "push", "copy", 0, 2).ok()) << lastError();
  EXPECT_FALSE(choose(windowed(Collective::kAllGather, kLarge), gpuMachine(), tableOf(""), forced).ok());
}

TEST(Copies, OfAnAllReduceNeedEqualShards) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_reduce", "two_shot", "copy", 0, 0).ok()) << lastError();
  EXPECT_EQ(planned(windowed(Collective::kAllReduce, 48 * 100, 3), "", forced).protocol, Protocol::kCopy);
  for (const size_t bytes : {48 * 100 + 16, 48 * 100 + 24}) {
    EXPECT_FALSE(choose(windowed(Collective::kAllReduce, bytes, 3), gpuMachine(), tableOf(""), forced).ok());
    EXPECT_NE(lastError().find("16 bytes for each rank"), std::string::npos) << lastError();
  }
}

TEST(Copies, OfAnAllReduceGoInAFewLargeChunksByFewBlocks) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_reduce", "two_shot", "copy", 0, 0).ok()) << lastError();
  for (const int ranks : {2, 3, 4, 8}) {
    for (size_t bytes = 48 * static_cast<size_t>(ranks); bytes <= size_t{1} << 31; bytes *= 4) {
      const Plan plan = planned(windowed(Collective::kAllReduce, bytes, ranks), "", forced);
      const size_t shard = bytes / static_cast<size_t>(ranks);
      EXPECT_EQ(plan.chunkBytes % 64, 0u);
      EXPECT_LE((shard + plan.chunkBytes - 1) / plan.chunkBytes, 4u) << bytes << " bytes, " << ranks;
      EXPECT_LE(plan.blocks, 16) << "more would be in the way of copies";
    }
  }
}

// What was measured was measured without windows.
TEST(Copies, CompeteWithWhatATableSays) {
  const Request request = windowed(Collective::kAllGather, kLarge);
  EXPECT_EQ(planned(request, gatherEntry("push", "warp_chunks", "210")).protocol, Protocol::kCopy);
  EXPECT_EQ(planned(request, gatherEntry("push", "warp_chunks", "210")).why, Why::kModel);
  EXPECT_EQ(planned(request, gatherEntry("push", "warp_chunks", "150")).why, Why::kTable);
  const Request plain = exampleRequest(Collective::kAllGather, kLarge, 2);
  EXPECT_EQ(planned(plain, gatherEntry("push", "warp_chunks", "210")).why, Why::kTable);
  EXPECT_EQ(planned(plain, gatherEntry("push", "copy", "100")).why, Why::kModel) << "it cannot run here";
}

TEST(Copies, AreExplained) {
  for (const bool there : {false, true}) {
    Request request = windowed(Collective::kAllGather, kLarge);
    request.windowed = there;
    bool found = false;
    for (const Candidate& candidate : explain(request, gpuMachine(), tableOf(""), {})) {
      if (candidate.plan.protocol != Protocol::kCopy) continue;
      found = true;
      EXPECT_EQ(candidate.possible, there);
      EXPECT_EQ(candidate.chosen, there);
    }
    EXPECT_TRUE(found);
  }
}

}  // namespace
}  // namespace stretto::planner
