// What a profiler plugin of ours is told of the replays of CUDA graphs: which call each kernel replays, and
// its number, which is the same on all ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <vector>

#include "base/scoped_variable.hpp"
#include "communicator/cuda/sums.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"
#include "profiler/journal.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kReplayedCount = 1000;
constexpr int kReplays = 5;

bool broadcast(const Member& member) {
  return member.expect(ncclBroadcast(inputOf(member), inputOf(member), kReplayedCount, ncclFloat, 1,
                                     member.comm, member.stream()),
                       "broadcast");
}

// By rank, function and block: the numbers of the replays, in the order in which they were told.
std::map<std::string, std::string> numbersIn(const Journal& journal) {
  std::map<std::string, std::string> functions, kernels, numbers;
  for (const JournalCall& call : journal.of("start", "CollApi")) {
    if (call.word("captured") == "1") functions[call.event] = call.word("func");
  }
  for (const JournalCall& call : journal.of("start", "KernelCh")) {
    if (functions.count(call.word("in")) == 0) continue;
    kernels[call.event] = call.word("rank") + functions[call.word("in")] + call.word("channel");
  }
  for (const JournalCall& call : journal.of("state", "KernelCh")) {
    if (call.word("state") == "1000") numbers[kernels[call.event]] += call.word("number") + " ";
  }
  return numbers;
}

TEST(Replays, HaveTheSameNumbersOnAllRanks) {
  if (!deviceThere()) GTEST_SKIP() << "no GPU";
  const std::string plugin = STRETTO_TEST_PROFILERS "/libnccl-profiler-recording-stamped.so";
  if (!std::filesystem::exists(plugin)) GTEST_SKIP() << plugin << " is not on this machine";
  const std::string log = ::testing::TempDir() + "replays_" + std::to_string(getpid());
  unlink(log.c_str());
  const ScopedVariable place("STRETTO_TEST_PROFILE_LOG", log.c_str());
  const ScopedVariable named("NCCL_PROFILER_PLUGIN", plugin.c_str());
  asThreads(3, connected([](Member& member) {
              const auto work = [&] { return sumInPlace(member, kReplayedCount) && broadcast(member); };
              if (!sumInPlace(member, kReplayedCount)) return;
              member.check(member.device->inGraph(work, kReplays, [&] { return member.board.meet(); }),
                           "a graph");
              sumInPlace(member, kReplayedCount);
              member.device->synchronize();
            }));
  const Journal journal = Journal::read(log);
  unlink(log.c_str());
  EXPECT_EQ(journal.complaints(), std::vector<std::string>());
  auto numbers = numbersIn(journal);
  // The first one was no replay; then they come in turns.
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(numbers[std::string(rank) + "AllReduce0"], "2 4 6 8 10 ");
    EXPECT_EQ(numbers[std::string(rank) + "Broadcast0"], "3 5 7 9 11 ");
  }
  for (const auto& [whose, those] : numbers) EXPECT_EQ(those, numbers["0" + whose.substr(1)]) << whose;
  // And what is outside of graphs has its operation, and no number of this kind.
  size_t eager = 0;
  for (const JournalCall& call : journal.of("start", "KernelCh"))
    eager += call.word("in").starts_with("Coll/");
  EXPECT_GE(eager, 6u);
}

}  // namespace
}  // namespace stretto
