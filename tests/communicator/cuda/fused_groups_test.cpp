// What is told and recorded of collectives that share a launch: of each as if it had its own.
#include <gtest/gtest.h>
#include <stretto.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/scoped_variable.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"
#include "harness/recorded.hpp"
#include "profiler/journal.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kFusedCount = 300;

// Sums in places of their own.
bool sums(const Member& member, size_t many) {
  member.expect(ncclGroupStart(), "a group's begin");
  for (size_t i = 0; i < many; ++i) {
    auto* const at = reinterpret_cast<float*>(member.device->at(0, nullptr)) + i * kFusedCount;
    member.expect(ncclAllReduce(at, at, kFusedCount, ncclFloat, ncclSum, member.comm, member.stream()),
                  "a sum");
  }
  return member.expect(ncclGroupEnd(), "a group");
}

// By rank: the kernels' blocks, the first of each operation, that are told with it, and the replays' numbers.
struct Told {
  std::map<std::string, std::vector<size_t>> kernels;
  std::map<std::string, std::set<int>> replays;

  explicit Told(const Journal& journal) {
    std::map<std::string, int> first;  // of an operation's event, or of the call that was captured
    const auto kernelsOf = journal.of("start", "KernelCh");
    for (const JournalCall& call : kernelsOf) {
      const int channel = std::stoi(call.word("channel"));
      const auto [known, isNew] = first.try_emplace(call.word("in"), channel);
      if (!isNew) known->second = std::min(known->second, channel);
    }
    std::map<std::string, size_t> reported;
    std::map<std::string, std::string> rankOf;
    for (const JournalCall& call : kernelsOf) {
      if (std::stoi(call.word("channel")) != first[call.word("in")]) continue;
      ++reported[call.word("in")];
      rankOf[call.event] = call.word("rank");
    }
    for (const JournalCall& call : journal.of("start", "Coll")) {
      kernels[call.word("rank")].push_back(reported[call.event]);
    }
    for (const JournalCall& call : journal.of("state", "KernelCh")) {
      const bool isReplay = call.word("state") == "1000" && rankOf.count(call.event) != 0;
      if (isReplay) replays[rankOf[call.event]].insert(std::stoi(call.word("number")));
    }
  }
};

TEST(FusedGroups, AreToldCallByCall) {
  if (!deviceThere()) GTEST_SKIP() << "no GPU";
  const std::string plugin = STRETTO_TEST_PROFILERS "/libnccl-profiler-recording-stamped.so";
  if (!std::filesystem::exists(plugin)) GTEST_SKIP() << plugin << " is not on this machine";
  const std::string log = ::testing::TempDir() + "fused_groups_" + std::to_string(getpid());
  unlink(log.c_str());
  const ScopedVariable place("STRETTO_TEST_PROFILE_LOG", log.c_str());
  const ScopedVariable named("NCCL_PROFILER_PLUGIN", plugin.c_str());
  asThreads(3, connected([](Member& member) {
              if (!sums(member, 5)) return;
              const auto meet = [&] { return member.board.meet(); };
              member.check(member.device->inGraph([&] { return sums(member, 3); }, 4, meet), "a graph");
              sums(member, 2);
              member.device->synchronize();
            }));
  const Journal journal = Journal::read(log);
  unlink(log.c_str());
  EXPECT_EQ(journal.complaints(), std::vector<std::string>());
  EXPECT_EQ(journal.neverStopped(), std::set<std::string>());
  Told reported(journal);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(reported.kernels[rank], std::vector<size_t>(7, 1)) << rank;
    EXPECT_EQ(reported.replays[rank], (std::set<int>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})) << rank;
  }
}

// Those of a launch are done when all of them are; those of an earlier one are, while it still waits.
TEST(FusedGroups, AreRecordedCallByCall) {
  if (devicesThere() < 2) GTEST_SKIP() << "there is no GPU for every rank";
  asThreads(2, connected([](Member& member) {
              sums(member, 4);
              if (member.rank == 0) sums(member, 3);
              if (member.rank == 0) expectStates(member, "ddddrrr");
              if (!member.board.meet()) return;
              if (member.rank == 1) sums(member, 3);
              expectStates(member, "ddddddd");
            }));
}

// What is in a link is known by the number of operations that its channel has finished: groups in one launch,
// graphs that replay, and messages between some of the ranks leave that number the same on all of them.
TEST(FusedGroups, LeaveLinksInStep) {
  if (!deviceThere()) GTEST_SKIP() << "no GPU";
  constexpr size_t kCount = 60000;  // on several channels
  asThreads(3, connected([](Member& member) {
              const auto isRight = [&](const char* what, float expected) {
                std::vector<float> values(kCount);
                member.device->download(reinterpret_cast<char*>(values.data()), member.device->at(1, nullptr),
                                        kCount * sizeof(float));
                ncclResult_t later = ncclSuccess;
                member.expect(ncclCommGetAsyncError(member.comm, &later), "ncclCommGetAsyncError");
                member.expect(later, what);
                return member.check(values == std::vector<float>(kCount, expected), what);
              };
              auto* const in = reinterpret_cast<float*>(member.device->at(0, nullptr));
              auto* const out = reinterpret_cast<float*>(member.device->at(1, nullptr));
              const auto meet = [&] { return member.board.meet(); };
              for (size_t round = 0; round < 3; ++round) {
                sums(member, 2 + round);
                member.check(member.device->inGraph([&] { return sums(member, 3); }, 2, meet), "a graph");
                if (member.rank == 0)
                  member.expect(ncclSend(in, 1000, ncclFloat, 1, member.comm, member.stream()), "a send");
                if (member.rank == 1)
                  member.expect(ncclRecv(out, 1000, ncclFloat, 0, member.comm, member.stream()), "a receive");
                std::vector<float> values(kCount, static_cast<float>(member.rank + 1));
                member.device->upload(member.device->at(0, nullptr), reinterpret_cast<char*>(values.data()),
                                      kCount * sizeof(float));
                member.expect(strettoCommForce(member.comm, "broadcast", "chain", "simple", 0, 0), "force");
                member.expect(strettoCommForce(member.comm, "all_reduce", "ring", "simple", 0, 0), "force");
                member.expect(ncclBroadcast(in, out, kCount, ncclFloat, 2, member.comm, member.stream()),
                              "a broadcast");
                if (!isRight("the broadcast", 3)) return;
                member.expect(
                    ncclAllReduce(in, out, kCount, ncclFloat, ncclSum, member.comm, member.stream()),
                    "a sum");
                if (!isRight("the sum", 6)) return;
                member.expect(strettoCommForce(member.comm, "all_reduce", nullptr, nullptr, 0, 0), "force");
              }
            }));
}

}  // namespace
}  // namespace stretto
