// Device windows are made when an operation first needs them, whatever the other ranks' users do at that
// time.
#include <cuda_runtime_api.h>

#include <stdexcept>

#include "api/cuda/sides.hpp"
#include "base/scoped_variable.hpp"
#include "communicator/device/layout.hpp"
#include "platform/cuda/driver.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kInputCount = 3000;

size_t windowBytesOf(const Member& member) {
  strettoCounters_t counters{};
  counters.size = sizeof counters;
  member.expect(strettoCommCounters(member.comm, &counters), "strettoCommCounters");
  return counters.windowBytes;
}

// Every rank's i-th float is rank + 1 + i % 7.
void fillInput(const Member& member) {
  std::vector<float> values(kInputCount);
  for (size_t i = 0; i < kInputCount; ++i)
    values[i] = static_cast<float>(member.rank + 1 + static_cast<int>(i % 7));
  member.device->upload(member.device->at(0, nullptr), reinterpret_cast<const char*>(values.data()),
                        kInputCount * sizeof(float));
}
bool enqueueSum(const Member& member) {
  return member.expect(ncclAllReduce(member.device->at(0, nullptr), member.device->at(1, nullptr),
                                     kInputCount, ncclFloat, ncclSum, member.comm, member.stream()),
                       "all-reduce");
}
bool holdsSum(const Member& member) {
  member.device->synchronize();
  std::vector<float> got(kInputCount);
  member.device->download(reinterpret_cast<char*>(got.data()), member.device->at(1, nullptr),
                          kInputCount * sizeof(float));
  const int ranks = member.ranks();
  for (size_t i = 0; i < kInputCount; ++i) {
    const auto wanted = static_cast<float>(ranks * (ranks + 1) / 2 + ranks * static_cast<int>(i % 7));
    if (got[i] == wanted) continue;
    member.complain("element %zu is %g, not %g", i, static_cast<double>(got[i]), static_cast<double>(wanted));
    return false;
  }
  return true;
}

// To rank 1.
void sendInput(const Member& member) {
  fillInput(member);
  member.expect(
      ncclSend(member.device->at(0, nullptr), kInputCount, ncclFloat, 1, member.comm, member.stream()),
      "send");
}
void receiveInput(const Member& member, int from = 0) {
  char* const to = member.device->at(1, nullptr);
  member.expect(ncclRecv(to, kInputCount, ncclFloat, from, member.comm, member.stream()), "receive");
  member.device->synchronize();
  float last = 0;
  member.device->download(reinterpret_cast<char*>(&last), to + (kInputCount - 1) * sizeof(float),
                          sizeof last);
  member.check(last == static_cast<float>(from + 1 + (kInputCount - 1) % 7), "what was received");
}

void leave(Member& member) {
  const double began = secondsNow();
  member.expect(ncclCommDestroy(member.comm), "destroy");
  member.comm = nullptr;
  member.check(secondsNow() - began < 8, "it waited for peers until its limit");
}

class FirstUse : public AmongGpus {};

TEST_P(FirstUse, NothingIsTakenBefore) {
  constexpr size_t kBefore = size_t{4} << 20;
  const auto [threads, ranks] = GetParam();
  const Body body = [](Member& member) {
    const size_t most = communicator::mostDeviceBytes(member.ranks());
    member.device = OnDevice::make(member.rank);
    fillInput(member);
    member.board.meet();
    size_t before = 0, after = 0, all = 0;
    cudaMemGetInfo(&before, &all);
    member.board.meet();
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    if (!member.expect(ncclCommInitRank(&member.comm, member.ranks(), id, member.rank), "init")) return;
    member.board.meet();
    cudaMemGetInfo(&after, &all);
    if (before > after + kBefore) member.complain("%zu bytes taken before first use", before - after);
    member.check(windowBytesOf(member) == 0, "a window before first use");
    member.board.meet();
    enqueueSum(member);
    holdsSum(member);
    member.check(windowBytesOf(member) > 0 && windowBytesOf(member) <= most, "the window's size");
    member.expect(ncclCommDestroy(member.comm), "destroy");
    member.comm = nullptr;
  };
  threads ? asThreads(ranks, body) : asProcesses(ranks, body);
}

// Enqueueing returns although the peers' users call nothing until it has.
TEST_P(FirstUse, NobodyWaitsForWhatPeersCall) {
  run([](Member& member) {
    fillInput(member);
    if (member.rank != 0) member.board.meet();
    enqueueSum(member);
    if (member.rank == 0) member.board.meet();
    holdsSum(member);
  });
}

TEST_P(FirstUse, MayBeInACapture) {
  run([](Member& member) {
    fillInput(member);
    member.board.meet();
    member.device->inGraph([&] { return enqueueSum(member); }, 3, [&] { return member.board.meet(); });
    holdsSum(member);
  });
}

// The others take no part, now or ever.
TEST_P(FirstUse, MayBeOfTwoRanks) {
  run([](Member& member) {
    if (member.rank == 0) sendInput(member);
    if (member.rank == 1) receiveInput(member);
    member.board.meet();
  });
}

TEST_P(FirstUse, NeverIsFine) {
  run([](Member& member) { member.check(windowBytesOf(member) == 0, "a window that nothing needs"); });
}

bool hasContext(int device) {
  using Ask = int (*)(int device, unsigned* flags, int* active);
  const auto ask = reinterpret_cast<Ask>(platform::cuda::driverFunction("cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = 0;
  if (ask == nullptr || ask(device, &flags, &active) != 0) {
    throw std::runtime_error("the driver does not say whether a GPU has a context");
  }
  return active != 0;
}

// Threads begin with GPU 0 current, the library's own ones too: rank 1's window is made on one of them, and
// more wait for the GPUs at the end. No rank is on GPU 0, where a context would take some 500 MB.
TEST_P(FirstUse, LeavesOtherGpusAlone) {
  constexpr double kLinger = 0.3;  // of threads that nobody waits for, at most
  const int others = devicesThere() - 1;
  if (others < 1) GTEST_SKIP() << "there is one GPU alone";
  const auto [threads, ranks] = GetParam();
  const ScopedVariable shared("STRETTO_SHARED_DEVICE", ranks > others ? "2" : "0");
  const Body use = connected([](Member& member) {
    fillInput(member);
    if (member.rank != 0) member.board.meet();
    enqueueSum(member);
    if (member.rank == 0) member.board.meet();
    holdsSum(member);
  });
  const Body body = [&](Member& member) {
    member.device = OnDevice::make(1 + member.rank % others);
    if (!member.check(!hasContext(0), "GPU 0 has a context before")) return;
    use(member);
    member.check(!eventually(kLinger, [] { return hasContext(0); }), "GPU 0 has got a context");
  };
  threads ? asThreads(ranks, body) : asProcesses(ranks, body);
}

INSTANTIATE_TEST_SUITE_P(Among, FirstUse, ::testing::ValuesIn(threadsAndProcesses()), nameOfAmong);

// Also where ranks share a GPU.
class FirstUseBeforeLeaving : public FirstUse {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

// What was sent arrives although its sender has left before its receiver called anything, and although those
// who had nothing to do left before both.
TEST_P(FirstUseBeforeLeaving, IsHeard) {
  run([](Member& member) {
    if (member.rank > 1) leave(member);
    member.board.meet();
    if (member.rank == 0) {
      sendInput(member);
      leave(member);
    }
    member.board.meet();
    if (member.rank != 1) return;
    receiveInput(member);
    if (member.ranks() == 2) return;
    member.expect(ncclAllReduce(member.device->at(0, nullptr), member.device->at(1, nullptr), kInputCount,
                                ncclFloat, ncclSum, member.comm, member.stream()),
                  "all-reduce with ranks that have left", ncclRemoteError);
    member.expectError("their absence", {"rank 2 left the communicator before rank 1"});
    member.expect(ncclCommAbort(member.comm), "abort");
    member.comm = nullptr;
  });
}

// Rank 1 has used its window for rank 0 only, and has called nothing else when rank 2 sends to it and leaves.
TEST_P(FirstUseBeforeLeaving, IsHeardByWhoUsedItsWindowForAnother) {
  if (GetParam().ranks == 2) GTEST_SKIP() << "there is no other";
  run([](Member& member) {
    if (member.rank == 0) sendInput(member);
    if (member.rank == 1) receiveInput(member);
    member.board.meet();
    if (member.rank == 2) {
      sendInput(member);
      leave(member);
    }
    member.board.meet();
    if (member.rank == 1) receiveInput(member, 2);
    member.board.meet();
  });
}

INSTANTIATE_TEST_SUITE_P(Among, FirstUseBeforeLeaving, ::testing::ValuesIn(threadsAndProcesses()),
                         nameOfAmong);

// What NCCL asks a group for, and what costs nothing to allow.
TEST(FirstUseByOneThread, NeedsNoGroup) {
  constexpr int kRanks = 2;
  if (devicesThere() < kRanks) GTEST_SKIP() << "there is no GPU for every rank";
  const Board board(kRanks);
  asThreads(1, [&](Member& only) {
    ncclComm_t comms[kRanks];
    if (!only.expect(ncclCommInitAll(comms, kRanks, nullptr), "init")) return;
    std::vector<Member> members;
    for (int rank = 0; rank < kRanks; ++rank) {
      members.push_back({rank, board, comms[rank], OnDevice::make(rank)});
      fillInput(members.back());
    }
    for (const Member& member : members) only.check(enqueueSum(member), "all-reduce");
    for (const Member& member : members) only.check(holdsSum(member), "its result");
    for (ncclComm_t comm : comms) only.expect(ncclCommDestroy(comm), "destroy");
  });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(board.complaints(rank), "");
}

}  // namespace
}  // namespace stretto
