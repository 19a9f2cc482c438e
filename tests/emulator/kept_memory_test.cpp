// What a communicator of emulated GPUs keeps of the host's memory when it has ended: nothing, but that each
// of 257 handles in turn has words of its last error.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

size_t allocated() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

TEST(KeptMemory, OfCommunicatorsThatEndedIsLittle) {
  if (allocated() == 0) GTEST_SKIP() << "this build's allocator does not say what is allocated";
  constexpr int kRanks = 2, kFirst = 40, kRounds = 140;
  constexpr size_t kEach = 512;  // none was measured
  asThreads(kRanks, [](Member& member) {
    member.device = OnDevice::make(member.rank);
    size_t before = 0;
    for (int round = 0; round < kRounds; ++round) {
      if (round == kFirst && member.rank == 0) before = allocated();
      ncclUniqueId id;
      if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
      if (!member.expect(ncclCommInitRank(&member.comm, kRanks, id, member.rank), "init")) return;
      member.expect(ncclAllReduce(member.device->at(0, nullptr), member.device->at(1, nullptr), 100,
                                  ncclFloat, ncclSum, member.comm, member.stream()),
                    "all-reduce");
      member.device->synchronize();
      member.expect(round % 2 == 0 ? ncclCommDestroy(member.comm) : ncclCommAbort(member.comm), "the end");
      member.comm = nullptr;
      member.board.meet();
    }
    constexpr size_t kMost = (kRounds - kFirst) * kRanks * kEach;
    const auto isLittle = [&] { return allocated() <= before + kMost; };
    if (member.rank == 0 && !eventually(5, isLittle)) {  // what is on its way out takes a little
      member.complain("%zu bytes for each communicator",
                      (allocated() - before) / ((kRounds - kFirst) * kRanks));
    }
  });
}

}  // namespace
}  // namespace stretto
