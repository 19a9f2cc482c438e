// Ranks under the recording plugin, and what it heard of them. Each case runs its ranks in a process of its
// own, because a process has one plugin.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "harness/ranks.hpp"
#include "profiler/journal.hpp"

namespace stretto::testing {

inline std::string recordingPlugin(const std::string& which = "v7") {
  return std::string(STRETTO_TEST_PROFILERS) + "/libnccl-profiler-recording-" + which + ".so";
}

inline void sum(Member& member, size_t count = 16) {
  std::vector<float> data(count, 1);
  member.expect(ncclAllReduce(data.data(), data.data(), count, ncclFloat, ncclSum, member.comm, nullptr),
                "ncclAllReduce");
}

class ProfilerCalls : public ::testing::Test {
 protected:
  // `body` on every rank of one process, a thread each, under the recording plugin.
  Journal run(uint64_t mask, const Body& body, int ranks = 2) {
    const std::string log = ::testing::TempDir() + "profiler_calls_" + std::to_string(getpid());
    unlink(log.c_str());
    setenv("STRETTO_TEST_PROFILE_LOG", log.c_str(), 1);
    setenv("STRETTO_TEST_PROFILE_MASK", std::to_string(mask).c_str(), 1);
    setenv("NCCL_PROFILER_PLUGIN", recordingPlugin(which_).c_str(), 1);
    const Board board(ranks);
    {
      Processes process(board, connected(body), 60, board.ranks());
      process.finish();
    }
    unsetenv("NCCL_PROFILER_PLUGIN");
    Journal journal = Journal::read(log);
    unlink(log.c_str());
    EXPECT_EQ(journal.complaints(), std::vector<std::string>());
    EXPECT_TRUE(journal.neverStopped().empty());
    EXPECT_EQ(journal.of("init", "").size(), static_cast<size_t>(ranks * communicators_));
    EXPECT_EQ(journal.of("finalize", "").size(), static_cast<size_t>(ranks * communicators_));
    return journal;
  }
  // The types of rank 0's events, in the order in which they started.
  static std::string startedBy(const Journal& journal) {
    std::string all;
    for (const JournalCall& call : journal.of("start", "")) {
      if (call.word("rank") == "0") all += call.word("event") + " ";
    }
    return all;
  }

  std::string which_ = "v7";
  int communicators_ = 1;  // that each rank is in
};

}  // namespace stretto::testing
