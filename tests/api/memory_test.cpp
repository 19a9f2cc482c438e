// What users get back: memory that they free, and what communicators held once they are destroyed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "api/calls.hpp"
#include "base/scoped_variable.hpp"
#include "bootstrap/loop.hpp"
#include "bootstrap/service.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "nccl.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kMegabyte = size_t{1} << 20;

// Bytes of ncclMemAlloc's segments, ours and others', that this process has mapped.
size_t segmentBytes() {
  std::ifstream maps("/proc/self/maps");
  size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("stretto-memory") == std::string::npos) continue;
    uint64_t begin = 0, end = 0;
    if (sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) bytes += end - begin;
  }
  return bytes;
}

// Of memory that is this process's alone.
size_t anonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    size_t kilobytes = 0;
    if (sscanf(line.c_str(), "RssAnon: %zu", &kilobytes) == 1) return kilobytes * 1024;
  }
  return 0;
}

// ---- ncclMemAlloc -----------------------------------------------------------------------------------------

constexpr size_t kSegment = 16 * kMegabyte;

bool allReduce(const Member& member, void* buffer) {
  return member.expect(
      ncclAllReduce(buffer, buffer, kSegment / 4, ncclFloat32, ncclSum, member.comm, nullptr), "all-reduce");
}

// Nothing is called after ncclMemFree: peers hear of it.
TEST(FreedMemory, IsUnmappedByPeersThatCallNothing) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "forks processes that have threads";
  const ScopedVariable direct("STRETTO_ALGO", "all_reduce:direct");
  asProcesses(3, connected([](Member& member) {
                void* buffer = nullptr;
                if (!member.expect(ncclMemAlloc(&buffer, kSegment), "allocate")) return;
                if (!allReduce(member, buffer)) return;
                member.check(segmentBytes() > kSegment, "no peer's memory is mapped: nothing is tested");
                if (member.rank == 0) member.expect(ncclMemFree(buffer), "free");
                const auto mine = [&] { return member.rank == 0 ? 0 : kSegment + kMegabyte; };
                const auto others = [&] { return (member.rank == 0 ? 2 : 1) * (kSegment + kMegabyte); };
                if (!eventually(10, [&] { return segmentBytes() <= mine() + others(); })) {
                  member.complain("%zu bytes are mapped", segmentBytes());
                }
                // Who has not freed is not unmapped: the next operation finds it.
                member.board.meet();
                if (member.rank == 0) member.expect(ncclMemAlloc(&buffer, kSegment), "allocate again");
                std::vector<float> ones(kSegment / 4, 1.0F);
                std::memcpy(buffer, ones.data(), kSegment);
                allReduce(member, buffer);
                member.check(static_cast<float*>(buffer)[kSegment / 8] == 3, "a wrong sum");
                member.board.meet();
                member.expect(ncclMemFree(buffer), "free");
                if (!eventually(10, [] { return segmentBytes() == 0; })) {
                  member.complain("%zu bytes are still mapped", segmentBytes());
                }
                member.board.meet();
              }));
}

TEST(FreedMemory, DoesNotAddUp) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "forks processes that have threads";
  const ScopedVariable direct("STRETTO_ALGO", "all_reduce:direct");
  asProcesses(2, connected([](Member& member) {
                for (int round = 0; round < 20; ++round) {
                  void* buffer = nullptr;
                  if (!member.expect(ncclMemAlloc(&buffer, kSegment), "allocate")) return;
                  if (!allReduce(member, buffer)) return;
                  member.expect(ncclMemFree(buffer), "free");
                  // The peer may be a round behind with its free.
                  if (eventually(5, [] { return segmentBytes() <= 3 * kSegment; })) continue;
                  member.complain("%zu bytes are mapped after round %d", segmentBytes(), round);
                  return;
                }
              }));
}

// ---- Destroyed communicators ------------------------------------------------------------------------------

TEST(DestroyedCommunicators, KeepNoScratch) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps what was freed";
#endif
  const Watchdog watchdog("sums of scaled values", 60);
  const size_t count = 8 * kMegabyte;
  std::vector<float> values(count, 1.0F);
  const size_t before = anonymousBytes();
  for (int times = 0; times < 12; ++times) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
    float two = 2;
    ncclRedOp_t twice;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&twice, &two, ncclFloat32, ncclScalarHostImmediate, comm),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclFloat32, twice, comm, nullptr),
              ncclSuccess);
    ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  EXPECT_EQ(values[count / 2], 4096);
  EXPECT_LT(anonymousBytes(), before + 3 * count * sizeof(float)) << "one is 32 MB";
}

// How many sessions this process hosts.
size_t sessions() {
  const auto use = bootstrap::ServiceUse::acquire();
  return use.ok() ? use.value()->loop().hosted() : SIZE_MAX;
}

// What other tests have left: ids that they made in vain. Sessions that are about to end have ended.
size_t settledSessions() {
  size_t last = sessions();
  for (int same = 0; same < 20; ++same) {
    usleep(10000);
    if (const size_t now = sessions(); now != last) {
      last = now;
      same = 0;
    }
  }
  return last;
}

TEST(UniqueIds, OfAListAreAllForgottenWithTheCommunicator) {
  const size_t before = settledSessions();
  std::vector<ncclUniqueId> ids(4);
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_TRUE(eventually(10, [&] { return sessions() == before + 4; })) << sessions();
  asThreads(4, [&](Member& member) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = member.rank % 2;
    const ncclResult_t wanted = config.blocking != 0 ? ncclSuccess : ncclInProgress;
    ncclResult_t state = ncclInProgress;
    if (!member.expect(ncclCommInitRankScalable(&member.comm, 4, member.rank, 4, ids.data(), &config), "make",
                       wanted)) {
      return;
    }
    eventually(30, [&] { return ncclCommGetAsyncError(member.comm, &state), state != ncclInProgress; });
    member.expect(state, "make");
    member.board.meet();
    if (!eventually(10, [&] { return sessions() == before + 1; }))
      member.complain("%zu sessions", sessions());
    member.board.meet();
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
  EXPECT_TRUE(eventually(10, [&] { return sessions() == before; })) << sessions();
}

TEST(UniqueIds, OfAListAreForgottenWhenTheCommunicatorCannotBeMade) {
  const size_t before = settledSessions();
  const ScopedVariable timeout("STRETTO_INIT_TIMEOUT", "0.3");
  ncclUniqueId ids[3];
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 3, 0, 3, ids, nullptr), ncclRemoteError) << lastNcclError();
  EXPECT_TRUE(eventually(10, [&] { return sessions() == before; })) << sessions();
}

// The first rank of a child opens a session for it, and may then find that it cannot join it.
TEST(Children, ThatCannotBeMadeAreForgotten) {
  const size_t before = settledSessions();
  asThreads(2, connected([](Member& member) {
              member.board.meet();
              if (member.rank == 0) setenv("STRETTO_TABLE", "/nowhere/table.json", 1);
              member.board.meet();
              ncclComm_t child = nullptr;
              member.check(ncclCommSplit(member.comm, 0, 0, &child, nullptr) != ncclSuccess,
                           "a child with a table that is none");
              member.board.meet();
              if (member.rank == 0) unsetenv("STRETTO_TABLE");
            }));
  EXPECT_TRUE(eventually(10, [&] { return sessions() == before; })) << sessions();
}

}  // namespace
}  // namespace stretto
