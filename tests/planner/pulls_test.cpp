// Plans that read peers' inputs: only between windows, and without a barrier at the end only for who names
// it.
#include <gtest/gtest.h>

#include "base/version.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

Request pulling(size_t bytes, int ranks, bool once, bool twice) {
  Request request = exampleRequest(Collective::kAllReduce, bytes, ranks);
  request.pullsOnce = once;
  request.pullsTwice = twice;
  return request;
}

Result<Plan> chosen(const Request& request, const Forced& forced = {}, const std::string& entries = "") {
  return choose(request, gpuMachine(), tableOf(entries), forced);
}

TEST(Pulls, AreChosenByName) {
  for (const char* const protocol : {"pull", "pull_nosync"}) {
    for (const int ranks : {2, 3, 8, algorithms::kMostPulled}) {
      for (const char* const algorithm : {"one_shot", "two_shot"}) {
        const auto plan =
            chosen(pulling(1000, ranks, true, true), forcedTo("all_reduce", algorithm, protocol));
        ASSERT_TRUE(plan.ok()) << lastError();
        EXPECT_STREQ(algorithms::nameOf(plan.value().protocol), protocol);
        EXPECT_STREQ(algorithms::nameOf(plan.value().algorithm), algorithm);
        EXPECT_EQ(plan.value().chunkBytes, 0u);
      }
    }
  }
}

TEST(Pulls, NeedWindowsForWhatTheyRead) {
  EXPECT_TRUE(chosen(pulling(1000, 2, true, false), forcedTo("all_reduce", "one_shot", "pull")).ok())
      << lastError();
  EXPECT_FALSE(chosen(pulling(1000, 2, false, true), forcedTo("all_reduce", "one_shot", "pull")).ok());
  EXPECT_NE(lastError().find("one_shot/pull: its input does not lie in a window"), std::string::npos)
      << lastError();
  EXPECT_TRUE(chosen(pulling(1000, 2, false, true), forcedTo("all_reduce", "two_shot", "pull")).ok())
      << lastError();
  EXPECT_FALSE(chosen(pulling(1000, 2, true, false), forcedTo("all_reduce", "two_shot", "pull")).ok());
  EXPECT_NE(lastError().find("two_shot/pull: its input and its results do not lie"), std::string::npos)
      << lastError();
}

TEST(Pulls, AreOfAFewRanks) {
  const Request request = pulling(1000, algorithms::kMostPulled + 1, true, true);
  EXPECT_FALSE(chosen(request, forcedTo("all_reduce", "one_shot", "pull")).ok());
  EXPECT_NE(lastError().find("reads from at most 16 ranks at a time"), std::string::npos) << lastError();
}

// Neither the model nor a table nor an algorithm that is forced makes the promise.
TEST(Pulls, WithoutABarrierAreForWhoNamesThem) {
  const std::string keys = std::string(R"("ranks": 2, "same_process": false, "gpu": "NVIDIA H200", )") +
                           R"("links": "nvlink", "version": ")" + kLibraryVersion + "\"";
  const std::string measured =
      entryText(rowText(1 << 20, "one_shot", "pull_nosync", R"("chunk_bytes": 0, "blocks": 0, "us": 0.1)"),
                "all_reduce", keys.c_str());
  for (size_t bytes = 8; bytes <= size_t{1} << 30; bytes *= 8) {
    for (const char* const algorithm : {"", "one_shot", "two_shot"}) {
      const auto plan =
          chosen(pulling(bytes, 2, true, true), forcedTo("all_reduce", algorithm, ""), measured);
      ASSERT_TRUE(plan.ok()) << lastError();
      EXPECT_NE(plan.value().protocol, Protocol::kPullNosync) << bytes << " bytes, " << algorithm;
    }
  }
  bool told = false;
  for (const Candidate& each : explain(pulling(4096, 2, true, true), gpuMachine(), tableOf(""), {})) {
    if (each.plan.protocol != Protocol::kPullNosync) continue;
    EXPECT_FALSE(each.chosen);
    EXPECT_NE(each.reason.find("only for who forces it"), std::string::npos) << each.reason;
    told = true;
  }
  EXPECT_TRUE(told);
}

// The last barrier costs what it costs.
TEST(Pulls, WithoutABarrierArePredictedToBeFaster) {
  const Request request = pulling(65536, 4, true, true);
  for (const char* const algorithm : {"one_shot", "two_shot"}) {
    const auto whole = chosen(request, forcedTo("all_reduce", algorithm, "pull"));
    const auto less = chosen(request, forcedTo("all_reduce", algorithm, "pull_nosync"));
    ASSERT_TRUE(whole.ok() && less.ok()) << lastError();
    EXPECT_NEAR(whole.value().predictedMicroseconds - less.value().predictedMicroseconds, 3, 1.5);
  }
}

// 235 us for 64 MB between two H200s.
TEST(Pulls, PushedByFewBlocksReachTheLink) {
  Machine machine = gpuMachine();
  machine.blocks = 8;
  const auto plan = choose(pulling(size_t{64} << 20, 2, true, true), machine, tableOf(""), {});
  ASSERT_TRUE(plan.ok()) << lastError();
  EXPECT_EQ(plan.value().protocol, Protocol::kPullPush);
  EXPECT_NEAR(plan.value().predictedMicroseconds, 238, 6);
}

// What travels in the data waits for no barrier.
TEST(Pulls, AreNotForSmallMessages) {
  for (size_t bytes = 8; bytes <= size_t{1} << 20; bytes *= 2) {
    const auto plan = chosen(pulling(bytes, 4, true, true));
    ASSERT_TRUE(plan.ok()) << lastError();
    EXPECT_NE(plan.value().protocol, Protocol::kPull) << bytes;
  }
}

}  // namespace
}  // namespace stretto::planner
