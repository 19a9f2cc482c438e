// Kernels that wait for each other without an end: both ends are told, in words, long before the deadline.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>

#include "communicator/cuda/sums.hpp"
#include "harness/cuda/endings.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kSentCount = 10'000'000;  // more than links hold, so that a send waits for its receiver

ncclResult_t sendTo(const Member& member, int peer, size_t count = kSentCount) {
  return ncclSend(inputOf(member), count, ncclFloat, peer, member.comm, member.stream());
}
ncclResult_t receiveFrom(const Member& member, int peer, size_t count = kSentCount) {
  return ncclRecv(outputOf(member), count, ncclFloat, peer, member.comm, member.stream());
}

class Standstill : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

// Every rank enqueues what cannot end, and is told so with both calls.
void standStill(int ranks, const std::function<void(Member&)>& enqueue,
                const std::vector<std::string>& calls) {
  asThreads(ranks, connected([&](Member& member) {
              member.expect(sum(member), "a first operation");
              member.device->synchronize();
              const Canary canary;
              const double began = secondsNow();
              enqueue(member);
              const bool ended =
                  eventually(30, [&] { return cudaStreamQuery(member.stream()) != cudaErrorNotReady; });
              const double took = secondsNow() - began;
              member.check(ended, "kernels that wait for each other go on");
              // Looks come at the pace of the device: on an emulated one, ending long before STRETTO_TIMEOUT,
              // a minute, is all that can be asked for.
              if (!kEmulated && took > canary.limit(5))
                member.complain("the kernels ended after %.1f s", took);
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expect(errorOf(member), "the error", ncclInvalidUsage);
              member.expectError("the standstill", calls);
              member.board.meet();
              ncclCommAbort(member.comm);
              member.comm = nullptr;
            }));
}

TEST_F(Standstill, OfASendAndACollective) {
  standStill(2,
             [](Member& member) {
               if (member.rank == 0) member.expect(sendTo(member, 1), "send");
               member.expect(sum(member), "all-reduce");
             },
             {"ranks disagree", "send float32 x 10000000 to rank 1", "#2 all_reduce float32 x 100000"});
}

TEST_F(Standstill, OfAReceiveAndACollectiveAmongThree) {
  standStill(3,
             [](Member& member) {
               if (member.rank == 2) member.expect(receiveFrom(member, 0, kSummedCount), "receive");
               member.expect(sum(member), "all-reduce");
             },
             {"ranks disagree", "receive float32 x 100000 from rank 0", "#2 all_reduce float32 x 100000"});
}

// Of collectives that differ so much that their kernels wait in different places.
TEST_F(Standstill, OfASmallAllToAllAndALargeAllReduce) {
  standStill(3,
             [](Member& member) {
               if (member.rank == 1) {
                 member.expect(sum(member, 1'000'000), "all-reduce");
                 return;
               }
               member.expect(ncclAlltoAll(inputOf(member), outputOf(member), 3, ncclFloat, member.comm,
                                          member.stream()),
                             "all-to-all");
             },
             {"ranks disagree", "rank 1", "#2 all_to_all float32 x 3", "#2 all_reduce float32 x 1000000"});
}

TEST_F(Standstill, OfTwoSendsThatAreNotInOneGroup) {
  standStill(2,
             [](Member& member) {
               member.expect(sendTo(member, 1 - member.rank), "send");
               member.expect(receiveFrom(member, 1 - member.rank), "receive");
             },
             {"ranks disagree", "send float32 x 10000000 to rank", "one group"});
}

TEST_F(Standstill, OfAWaitForASignalAndASend) {
  standStill(2,
             [](Member& member) {
               if (member.rank == 0) {
                 ncclWaitSignalDesc_t wanted{1, 1, 0, 0};
                 member.expect(ncclWaitSignal(1, &wanted, member.comm, member.stream()), "wait");
                 member.expect(receiveFrom(member, 1), "receive");
               } else {
                 member.expect(sendTo(member, 0), "send");
                 member.expect(ncclSignal(0, 0, 0, 0, member.comm, member.stream()), "signal");
               }
             },
             {"ranks disagree", "send float32 x 10000000 to rank 0", "wait for 1 signals of rank 1"});
}

// Nobody counts a graph's messages, and none of these is one that was sent before.
TEST_F(Standstill, OfTwoSendsAfterACapturedTransfer) {
  standStill(2,
             [](Member& member) {
               const int peer = 1 - member.rank;
               member.device->inGraph(
                   [&] {
                     ncclGroupStart();
                     const bool sent = member.expect(sendTo(member, peer, 10), "send in a graph");
                     const bool received = member.expect(receiveFrom(member, peer, 10), "receive in a graph");
                     return member.expect(ncclGroupEnd(), "group") && sent && received;
                   },
                   3, [] { return true; });
               member.expect(sendTo(member, peer), "send");
               member.expect(receiveFrom(member, peer), "receive");
             },
             {"ranks disagree", "send float32 x 10000000 to rank", "one group"});
}

TEST_F(Standstill, OfAReceiveFromARankThatHasLeft) {
  asThreads(2, connected([](Member& member) {
              member.expect(sum(member), "a first operation");
              member.device->synchronize();
              if (member.rank == 1) return;
              member.expect(receiveFrom(member, 1, kSummedCount), "receive");
              const bool ended =
                  eventually(30, [&] { return cudaStreamQuery(member.stream()) != cudaErrorNotReady; });
              member.check(ended, "a kernel that waits for a rank that has left goes on");
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expect(errorOf(member), "the error", ncclRemoteError);
              member.expectError("the absence", {"rank 1", "finalised"});
              ncclCommAbort(member.comm);
              member.comm = nullptr;
            }));
}

// The same calls in an order that ends: who waits longest is not accused.
TEST_F(Standstill, IsNotWhereALateRankComes) {
  asThreads(3, connected([](Member& member) {
              member.expect(sum(member), "a first operation");
              if (member.rank == 0) {
                member.device->synchronize();
                member.board.meet();
                (void)eventually(1.5, [] { return false; });
                member.expect(receiveFrom(member, 1, kSummedCount), "receive");
              } else {
                member.board.meet();
                if (member.rank == 1) member.expect(sendTo(member, 0, kSummedCount), "send");
              }
              member.expect(sum(member), "all-reduce");
              member.device->synchronize();
              member.expect(errorOf(member), "the error");
            }));
}

}  // namespace
}  // namespace stretto
