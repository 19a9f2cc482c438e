// Calls of one communicator that meet: an abort on another thread, as nccl.h allows, or each other, as it
// does not.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "api/nccl_device.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kBytes = size_t{1} << 20;

// Until the communicator is gone: each answers or is refused, and reads nothing that the abort frees.
void callUntilItIsGone(const Member& member, ncclWindow_t window) {
  const int peer = 1 - member.rank;
  for (ncclResult_t result = ncclSuccess; result == ncclSuccess;) {
    void* pointer = nullptr;
    uint64_t bytes = 0;
    strettoCounters_t counters{};
    counters.size = sizeof counters;
    (void)ncclSignal(peer, 0, 0, 0, member.comm, nullptr);
    (void)ncclGetPeerDevicePointer(window, 8, peer, &pointer);
    (void)ncclCommMemStats(member.comm, ncclStatGpuMemTotal, &bytes);
    if (member.rank == 0) (void)ncclCommWindowDeregister(member.comm, window);
    result = strettoCommCounters(member.comm, &counters);
  }
}

// What happens in a few microseconds is met by some of many, and by ThreadSanitizer in any of them.
TEST(MeetingAnAbort, CallsTouchNothingThatItFrees) {
  constexpr int kRounds = STRETTO_TEST_TSAN ? 10 : 60;
  for (int round = 0; round < kRounds; ++round) {
    asThreads(2, connected([&](Member& member) {
                std::vector<std::byte> memory(4096);
                ncclWindow_t window = nullptr;
                member.expect(ncclCommWindowRegister(member.comm, memory.data(), memory.size(), &window,
                                                     NCCL_WIN_COLL_SYMMETRIC),
                              "register");
                member.board.meet();
                const ncclComm_t comm = std::exchange(member.comm, nullptr);
                std::thread aborts([&] {
                  std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
                  member.expect(ncclCommAbort(comm), "abort");
                });
                Member caller = member;
                caller.comm = comm;
                callUntilItIsGone(caller, window);
                aborts.join();
                member.board.meet();
              }));
  }
}

// A window that is deregistered while the communicator is aborted: whichever comes first, nothing of the
// peer's memory stays mapped, and its owner may free it.
void abortWhileDeregistering(const Member& member, int round) {
  ncclComm_t child = nullptr;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  member.expect(ncclCommSplit(member.comm, 0, member.rank, &child, nullptr), "split");
  member.expect(ncclMemAlloc(&memory, kBytes), "allocate");
  member.expect(ncclCommWindowRegister(child, memory, kBytes, &window, NCCL_WIN_COLL_SYMMETRIC), "register");
  member.board.meet();
  std::thread aborts([&] { member.expect(ncclCommAbort(child), "abort"); });
  if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
  const ncclResult_t result = ncclCommWindowDeregister(child, window);
  member.check(result == ncclSuccess || result == ncclInvalidArgument, "neither done nor too late");
  aborts.join();
  member.expect(ncclMemFree(memory), "free");
  member.board.meet();
}

TEST(MeetingAnAbort, WindowsDoNotStayMapped) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  asProcesses(2, connected([](Member& member) {
                constexpr size_t kRounds = 24, kOther = kRounds / 2;  // threads and connections come and go
                abortWhileDeregistering(member, 0);
                const size_t mappings = mappingsNow(), descriptors = descriptorsNow();
                for (size_t round = 0; round < kRounds; ++round)
                  abortWhileDeregistering(member, static_cast<int>(round));
                const auto isLetGo = [&] {
                  return mappingsNow() < mappings + kOther && descriptorsNow() < descriptors + kOther;
                };
                member.check(eventually(20, isLetGo), "windows are still mapped");
              }));
}

// Ranks start seconds apart: who comes last still hears what happened to the others, and not that its own
// process, which made the id, has ended.
TEST(MeetingAnAbort, ARankThatJoinsLaterIsToldOfIt) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  asProcesses(2, [](Member& member) {
    ncclUniqueId id;
    member.board.shareId(member.rank, &id);
    if (member.rank == 1) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      member.expect(ncclCommInitRankConfig(&member.comm, 2, id, 1, &config), "init", ncclInProgress);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      member.expect(ncclCommAbort(member.comm), "abort");
    }
    member.board.meet();
    if (member.rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      member.expect(ncclCommInitRank(&member.comm, 2, id, 0), "init", ncclRemoteError);
      member.expectError("the error", {"rank 1", "ncclCommAbort"});
    }
    member.board.meet();
  });
}

// nccl.h has one call at a time. Threads that call at the same moment in spite of that run one after the
// other, so nothing breaks; which is first nobody says.
TEST(TwoThreads, ThatCallAtOnceRunOneAfterTheOther) {
  constexpr int kThreads = 3, kEach = STRETTO_TEST_TSAN ? 100 : 1000, kCount = 5000;
  asThreads(2, connected([](Member& member) {
              const auto call = [&] {
                std::vector<int> ones(kCount, 1), sums(kCount);
                const std::vector<int> twos(kCount, 2);
                for (int i = 0; i < kEach; ++i) {
                  if (!member.expect(ncclAllReduce(ones.data(), sums.data(), kCount, ncclInt, ncclSum,
                                                   member.comm, nullptr),
                                     "reduce") ||
                      !member.check(sums == twos, "a wrong sum")) {
                    return;
                  }
                }
              };
              std::vector<std::thread> threads;
              for (int i = 0; i < kThreads; ++i) threads.emplace_back(call);
              for (std::thread& thread : threads) thread.join();
            }));
}

}  // namespace
}  // namespace stretto
