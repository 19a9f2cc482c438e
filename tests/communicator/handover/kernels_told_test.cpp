// What a profiler plugin hears of the kernels of GPU ranks, on GPUs that are made up (fake_devices.cpp): here
// because no other program's ranks are on such. What it hears else is profiler_test.cpp's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/scoped_variable.hpp"
#include "harness/ranks.hpp"
#include "observe/profiler_abi.hpp"
#include "profiler/journal.hpp"

void fakeSetDevice(int device);
int fakeStampsWanted();

namespace stretto {
namespace {

using namespace stretto::testing;

void sum(Member& member) {
  std::vector<float> data(16, 1);
  member.expect(ncclAllReduce(data.data(), data.data(), 16, ncclFloat, ncclSum, member.comm, nullptr),
                "ncclAllReduce");
}

// `body` on ranks that are threads of one process, each on a GPU of its own, under the recording plugin.
Journal reported(int ranks, const Body& body) {
  const std::string log = ::testing::TempDir() + "kernels_told_" + std::to_string(getpid());
  unlink(log.c_str());
  const ScopedVariable place("STRETTO_TEST_PROFILE_LOG", log.c_str());
  const std::string plugin = std::string(STRETTO_TEST_PROFILERS) + "/libnccl-profiler-recording-v7.so";
  const ScopedVariable named("NCCL_PROFILER_PLUGIN", plugin.c_str());
  const Board board(ranks);
  // Kernels that are made up wait for nobody; a rank that left before another had its window would not be
  // found.
  const Body together = connected([&](Member& member) {
    body(member);
    member.check(member.board.meet(), "a rank has left");
  });
  const Body onGpu = [&](Member& member) {
    fakeSetDevice(member.rank);
    together(member);
  };
  Processes(board, onGpu, 60, board.ranks()).finish();
  Journal journal = Journal::read(log);
  unlink(log.c_str());
  EXPECT_EQ(journal.complaints(), std::vector<std::string>());
  EXPECT_TRUE(journal.neverStopped().empty());
  return journal;
}

TEST(KernelsTold, AreAsManyAsTheOperationSays) {
  const Journal journal = reported(2, [](Member& member) {
    sum(member);
    sum(member);
  });
  uint64_t channels = 0;
  ASSERT_EQ(journal.of("start", "Coll").size(), 4u);
  for (const JournalCall& call : journal.of("start", "Coll")) {
    EXPECT_GT(call.number("channels"), 0u);
    channels += call.number("channels");
  }
  EXPECT_EQ(journal.of("start", "KernelCh").size(), channels);
  for (const JournalCall& call : journal.of("start", "KernelCh")) EXPECT_NE(call.word("in"), "");
}

// Kernels of operations that are not told of leave stamps all the same.
TEST(KernelsTold, AreThoseOfTheOperationsThatAreToldOf) {
  const ScopedVariable every("STRETTO_PROFILE_EVERY", "2");
  const Journal journal = reported(2, [](Member& member) {
    for (int i = 0; i < 5; ++i) sum(member);
    float data[2] = {};
    for (int i = 0; i < 2; ++i) {
      ncclGroupStart();
      ncclSend(data, 1, ncclFloat, 1 - member.rank, member.comm, nullptr);
      ncclRecv(data + 1, 1, ncclFloat, 1 - member.rank, member.comm, nullptr);
      member.expect(ncclGroupEnd(), "ncclGroupEnd");
    }
  });
  uint64_t channels = 0;
  std::string numbers;
  for (const JournalCall& call : journal.of("start", "Coll")) {
    channels += call.number("channels");
    if (call.word("rank") == "1") numbers += call.word("seq") + " ";
  }
  EXPECT_EQ(numbers, "0 2 4 ");
  EXPECT_EQ(journal.of("start", "P2p").size(), 4u);
  for (const JournalCall& call : journal.of("start", "P2p")) channels += call.number("channels");
  EXPECT_EQ(journal.of("start", "KernelCh").size(), channels);
  for (const JournalCall& call : journal.of("start", "KernelCh")) EXPECT_NE(call.word("in"), "");
}

// A copy: plugins that wait for the kernels of an operation would wait for ever.
TEST(KernelsTold, AreNoneOfAnOperationWithoutAKernel) {
  const Journal journal = reported(1, [](Member& member) { sum(member); });
  ASSERT_EQ(journal.of("start", "Coll").size(), 1u);
  EXPECT_EQ(journal.of("start", "Coll")[0].word("channels"), "0");
  EXPECT_TRUE(journal.of("start", "KernelCh").empty());
}

// By then the operation is announced: peers run it, so this rank must too.
TEST(KernelsTold, OperationsGoOnWhereStampsCannotBeHad) {
  const ScopedVariable none("FAKE_STAMPS", "0");
  const Journal journal = reported(2, [](Member& member) {
    for (int i = 0; i < 3; ++i) sum(member);
    float data[2] = {};
    ncclGroupStart();
    ncclSend(data, 1, ncclFloat, 1 - member.rank, member.comm, nullptr);
    ncclRecv(data + 1, 1, ncclFloat, 1 - member.rank, member.comm, nullptr);
    member.expect(ncclGroupEnd(), "ncclGroupEnd");
    member.board.meet();
    member.check(fakeStampsWanted() == 2, "stamps were asked for once by each rank");
  });
  EXPECT_EQ(journal.of("start", "Coll").size(), 6u);
  for (const JournalCall& call : journal.of("start", "Coll")) EXPECT_EQ(call.word("channels"), "0");
  EXPECT_EQ(journal.of("start", "P2p").size(), 4u);
  EXPECT_TRUE(journal.of("start", "KernelCh").empty());
}

}  // namespace
}  // namespace stretto
