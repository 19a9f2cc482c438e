// Host streams, buffers of ncclMemAlloc, several rings, and counts beyond 32 bits.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

ncclResult_t sum(std::vector<int>& values, ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, comm, stream);
}

TEST(Streams, RunInTheOrderOfTheCalls) {
  asThreads(3, connected([](Member& member) {
              cudaStream_t stream = nullptr;
              if (!member.expect(strettoStreamCreate(&stream), "create")) return;
              member.expect(strettoStreamQuery(stream), "an idle stream");
              std::vector<int> values(5000, 1), copy(5000, 0);
              for (int times = 0; times < 6; ++times)
                member.expect(sum(values, member.comm, stream), "enqueue");
              member.expect(
                  ncclBroadcast(values.data(), copy.data(), values.size(), ncclInt32, 1, member.comm, stream),
                  "enqueue");
              member.expect(strettoStreamSynchronize(stream), "synchronise");
              member.expect(strettoStreamQuery(stream), "a stream that is done");
              member.check(values == std::vector<int>(5000, 729), "wrong sums");
              member.check(copy == values, "a broadcast before its sums");
              member.expect(strettoStreamDestroy(stream), "destroy");
              member.expect(strettoStreamDestroy(stream), "destroy twice", ncclInvalidArgument);
              member.expect(strettoStreamQuery(stream), "a dead stream", ncclInvalidArgument);
            }));
}

// What is enqueued returns at once, though nobody else is there yet; what is called afterwards without a
// stream comes afterwards.
TEST(Streams, ReturnAtOnceAndKeepTheOrderWithOtherCalls) {
  asThreads(2, connected([](Member& member) {
              cudaStream_t stream = nullptr;
              if (!member.expect(strettoStreamCreate(&stream), "create")) return;
              std::vector<int> first(1000, 1);
              if (member.rank == 0) {
                member.expect(sum(first, member.comm, stream), "enqueue");
                member.expect(strettoStreamQuery(stream), "while the peer is away", ncclInProgress);
                member.board.meet();
                member.expect(
                    ncclAllReduce(first.data(), first.data(), 1, ncclInt32, ncclSum, member.comm, nullptr),
                    "behind it");
              } else {
                member.board.meet();
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                member.expect(sum(first, member.comm, nullptr), "the same without a stream");
                member.expect(
                    ncclAllReduce(first.data(), first.data(), 1, ncclInt32, ncclSum, member.comm, nullptr),
                    "behind it");
              }
              member.expect(strettoStreamSynchronize(stream), "synchronise");
              member.check(first[0] == 4 && first[999] == 2, "a wrong order");
              member.expect(strettoStreamDestroy(stream), "destroy");
            }));
}

// Two streams and two communicators, in opposite orders on the two ranks: streams do not wait for each other.
TEST(Streams, AreIndependent) {
  asThreads(2, connected([](Member& member) {
              ncclComm_t other = nullptr;
              if (!member.expect(ncclCommSplit(member.comm, 0, 0, &other, nullptr), "split")) return;
              cudaStream_t streams[2] = {};
              for (cudaStream_t& stream : streams) member.expect(strettoStreamCreate(&stream), "create");
              std::vector<int> values[2] = {std::vector<int>(3000, 1), std::vector<int>(3000, 2)};
              for (int times = 0; times < 20; ++times) {
                const int first = (times + member.rank) % 2;
                for (const int which : {first, 1 - first}) {
                  member.expect(sum(values[which], which == 0 ? member.comm : other, streams[which]),
                                "enqueue");
                }
              }
              for (cudaStream_t stream : streams) {
                member.expect(strettoStreamSynchronize(stream), "synchronise");
                member.expect(strettoStreamDestroy(stream), "destroy");
              }
              member.check(values[0] == std::vector<int>(3000, 1 << 20), "wrong sums");
              member.check(values[1] == std::vector<int>(3000, 2 << 20), "wrong sums");
              member.expect(ncclCommDestroy(other), "destroy");
            }));
}

// A group that names two streams is done on both when either is waited for.
TEST(Streams, OfOneGroupAreAllHonoured) {
  asThreads(2, connected([](Member& member) {
              cudaStream_t streams[2] = {};
              for (cudaStream_t& stream : streams) member.expect(strettoStreamCreate(&stream), "create");
              const int peer = 1 - member.rank;
              for (const int awaited : {0, 1}) {
                std::vector<int> out(200000, member.rank + 1), in(200000, 0);
                ncclGroupStart();
                ncclSend(out.data(), out.size(), ncclInt32, peer, member.comm, streams[0]);
                ncclRecv(in.data(), in.size(), ncclInt32, peer, member.comm, streams[1]);
                member.expect(ncclGroupEnd(), "group");
                member.expect(strettoStreamSynchronize(streams[awaited]), "synchronise");
                member.check(in == std::vector<int>(200000, peer + 1), "synchronised before it was done");
                member.expect(strettoStreamSynchronize(streams[1 - awaited]), "synchronise");
              }
              for (cudaStream_t stream : streams) member.expect(strettoStreamDestroy(stream), "destroy");
            }));
}

TEST(Streams, DestroyingWaits) {
  asThreads(2, connected([](Member& member) {
              cudaStream_t stream = nullptr;
              member.expect(strettoStreamCreate(&stream), "create");
              std::vector<int> values(1000, 1);
              for (int times = 0; times < 10; ++times)
                member.expect(sum(values, member.comm, stream), "enqueue");
              member.expect(strettoStreamDestroy(stream), "destroy");
              member.check(values == std::vector<int>(1000, 1024), "destroyed before it was done");
            }));
}

// Destroying the communicator waits for what its streams still run.
TEST(Streams, OutliveTheirCommunicator) {
  asThreads(2, connected([](Member& member) {
              cudaStream_t stream = nullptr;
              member.expect(strettoStreamCreate(&stream), "create");
              std::vector<int> values(100000, 1);
              for (int times = 0; times < 10; ++times)
                member.expect(sum(values, member.comm, stream), "enqueue");
              member.expect(ncclCommDestroy(member.comm), "destroy the communicator");
              member.comm = nullptr;
              member.check(values == std::vector<int>(100000, 1024), "destroyed before it was done");
              member.expect(strettoStreamDestroy(stream), "destroy");
            }));
}

// More than 2^31 elements: one byte each, and not all of them looked at.
TEST(Huge, CountsBeyond32BitsAreWhole) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer would need many times these 4 GB";
  constexpr size_t kCount = (size_t{1} << 31) + 12345;
  const auto map = [] {
    void* at =
        mmap(nullptr, kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  };
  const auto at = [](size_t i) { return static_cast<char>(i * 31 + i / 1000003); };
  asThreads(2, connected([&](Member& member) {
              char* const buffer = map();
              if (!member.check(buffer != nullptr, "no memory")) return;
              constexpr size_t kStep = 99991;
              if (member.rank == 1) {
                for (size_t i = 0; i < kCount; i += kStep) buffer[i] = at(i);
                for (size_t i = kCount - 20000; i < kCount; ++i) buffer[i] = at(i);
              }
              if (member.expect(ncclBroadcast(buffer, buffer, kCount, ncclInt8, 1, member.comm, nullptr),
                                "broadcast")) {
                bool right = true;
                for (size_t i = 0; i < kCount; i += kStep) right = right && buffer[i] == at(i);
                for (size_t i = kCount - 20000; i < kCount; ++i) right = right && buffer[i] == at(i);
                member.check(right, "wrong bytes");
              }
              member.board.meet();
              munmap(buffer, kCount);
            }),
            120);
}

}  // namespace
}  // namespace stretto
