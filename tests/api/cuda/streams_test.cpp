// Streams and graphs of ranks on GPUs, through nccl.h. Ranks share the devices that there are.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/scoped_variable.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kArrayCount = 5000;
constexpr size_t kArrayBytes = kArrayCount * sizeof(float);

class OnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};
class Streams : public OnGpus {};
class Graphs : public OnGpus {};

float valueOf(int rank, size_t i) {
  return static_cast<float>(rank + 1) * static_cast<float>(1 + i % 13);
}
float sumOf(int ranks, size_t i) {
  return static_cast<float>(ranks * (ranks + 1) / 2) * static_cast<float>(1 + i % 13);
}

// A rank with two arrays of kArrayCount floats on its GPU: its input, and room for results.
struct Arrays {
  Member& member;
  float* input = reinterpret_cast<float*>(member.device->at(0, nullptr));
  float* output = reinterpret_cast<float*>(member.device->at(1, nullptr));

  explicit Arrays(Member& rank) : member(rank) {
    std::vector<float> values(kArrayCount);
    for (size_t i = 0; i < kArrayCount; ++i) values[i] = valueOf(member.rank, i);
    member.device->upload(reinterpret_cast<char*>(input), reinterpret_cast<const char*>(values.data()),
                          kArrayBytes);
  }
  bool fine(cudaError_t error, const char* what) const {
    if (error != cudaSuccess) member.complain("%s: %s", what, cudaGetErrorString(error));
    return error == cudaSuccess;
  }
  bool sum(const float* from, float* to, cudaStream_t stream) const {
    return member.expect(ncclAllReduce(from, to, kArrayCount, ncclFloat, ncclSum, member.comm, stream),
                         "all-reduce");
  }
  // What `place` holds is `factor` times the sum of all ranks' inputs.
  void expectSum(const float* place, float factor, const char* what) const {
    std::vector<float> got(kArrayCount);
    member.device->download(reinterpret_cast<char*>(got.data()), reinterpret_cast<const char*>(place),
                            kArrayBytes);
    for (size_t i = 0; i < kArrayCount; ++i) {
      if (got[i] == factor * sumOf(member.ranks(), i)) continue;
      return member.complain("%s: element %zu is %g, should be %g", what, i, got[i],
                             factor * sumOf(member.ranks(), i));
    }
  }
  void expectHealthy() const {
    ncclResult_t later = ncclSuccess;
    member.expect(ncclCommGetAsyncError(member.comm, &later), "asked for an error");
    member.expect(later, "an asynchronous error");
  }
};

// Each all-reduce takes the result of the one before, on the other stream: without order it would read too
// early.
TEST_F(Streams, OfOneCommunicatorAreOrdered) {
  constexpr int kTurns = 20;
  asThreads(2, connected([](Member& member) {
              const Arrays arrays(member);
              const cudaStream_t streams[] = {member.device->stream(), member.device->secondStream()};
              for (int turn = 0; turn < kTurns; ++turn) {
                const cudaStream_t stream = streams[turn % 2];
                if (!arrays.sum(arrays.input, arrays.output, stream)) return;
                member.expect(ncclBroadcast(arrays.output, arrays.output, kArrayCount, ncclFloat, turn % 2,
                                            member.comm, streams[(turn + 1) % 2]),
                              "broadcast");
              }
              member.device->synchronize();
              arrays.expectSum(arrays.output, 1, "the last result");
              arrays.expectHealthy();
            }));
}

TEST_F(Streams, TransfersOfAGroupMayNameSeveral) {
  asThreads(
      2, connected([](Member& member) {
        const Arrays arrays(member);
        const int other = 1 - member.rank;
        float* const second = arrays.output + kArrayCount;
        ncclGroupStart();
        ncclSend(arrays.input, kArrayCount, ncclFloat, other, member.comm, member.device->stream());
        ncclRecv(arrays.output, kArrayCount, ncclFloat, other, member.comm, member.device->secondStream());
        ncclSend(arrays.input, kArrayCount, ncclFloat, member.rank, member.comm, member.device->stream());
        ncclRecv(second, kArrayCount, ncclFloat, member.rank, member.comm, member.device->stream());
        member.expect(ncclGroupEnd(), "a group");
        member.device->synchronize();
        for (const auto& [place, from] : {std::pair(arrays.output, other), std::pair(second, member.rank)}) {
          std::vector<float> got(kArrayCount);
          member.device->download(reinterpret_cast<char*>(got.data()), reinterpret_cast<const char*>(place),
                                  kArrayBytes);
          for (size_t i = 0; i < kArrayCount; ++i) {
            if (got[i] == valueOf(from, i)) continue;
            return member.complain("from rank %d: element %zu is %g", from, i, got[i]);
          }
        }
        arrays.expectHealthy();
      }));
}

TEST_F(Graphs, AreReplayedManyTimesAndMixWithEagerCalls) {
  constexpr int kReplays = 500;
  asThreads(3, connected([](Member& member) {
              const Arrays arrays(member);
              const auto meet = [&] { return member.board.meet(); };
              const auto work = [&] {
                return arrays.sum(arrays.input, arrays.output, member.stream()) &&
                       member.expect(ncclBroadcast(arrays.output, arrays.output, kArrayCount, ncclFloat, 1,
                                                   member.comm, member.stream()),
                                     "broadcast");
              };
              for (int round = 0; round < 3; ++round) {
                if (!work()) return;
                if (!member.check(member.device->inGraph(work, kReplays, meet), "a graph")) return;
                arrays.expectSum(arrays.output, 1, "the last replay");
              }
              arrays.expectHealthy();
            }),
            100);
}

TEST_F(Graphs, HoldTransfersAndSeveralStreams) {
  asThreads(2, connected([](Member& member) {
              const Arrays arrays(member);
              const cudaStream_t main = member.device->stream(), side = member.device->secondStream();
              const int other = 1 - member.rank;
              float* const received = arrays.output + kArrayCount;
              cudaEvent_t fork = nullptr, join = nullptr;
              if (!arrays.fine(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "an event") ||
                  !arrays.fine(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "an event")) {
                return;
              }
              const auto work = [&] {
                bool fine = arrays.fine(cudaEventRecord(fork, main), "fork") &&
                            arrays.fine(cudaStreamWaitEvent(side, fork, 0), "fork") &&
                            arrays.sum(arrays.input, arrays.output, side);
                ncclGroupStart();
                ncclSend(arrays.input, kArrayCount, ncclFloat, other, member.comm, main);
                ncclRecv(received, kArrayCount, ncclFloat, other, member.comm, main);
                fine = member.expect(ncclGroupEnd(), "a group") && fine;
                return arrays.fine(cudaEventRecord(join, side), "join") &&
                       arrays.fine(cudaStreamWaitEvent(main, join, 0), "join") && fine;
              };
              member.check(member.device->inGraph(work, 50, [&] { return member.board.meet(); }), "a graph");
              arrays.expectSum(arrays.output, 1, "the sum");
              arrays.expectHealthy();
              cudaEventDestroy(fork);
              cudaEventDestroy(join);
            }),
            100);
}

// What is enqueued returns at once, whoever is missing.
TEST_F(Streams, CallsReturnBeforeTheirOperationIsDone) {
  asThreads(2, connected([](Member& member) {
              const Arrays arrays(member);
              if (member.rank == 1 && !member.board.meet()) return;
              const double began = secondsNow();
              for (int i = 0; i < 10; ++i) arrays.sum(arrays.input, arrays.output, member.stream());
              member.check(secondsNow() - began < 5, "a call waited for its peer");
              if (member.rank == 0 && !member.board.meet()) return;
              member.device->synchronize();
              arrays.expectSum(arrays.output, 1, "the last result");
            }));
}

// One thread, several communicators: nccl-tests' -g N.
TEST_F(Streams, OneThreadDrivesSeveralRanksInGroups) {
  constexpr int kRanks = 3;
  const ScopedVariable shared("STRETTO_SHARED_DEVICE", devicesThere() < kRanks ? "3" : "0");
  asThreads(1, [](Member& member) {
    member.device = OnDevice::make(0);
    int devices = 1;
    (void)cudaGetDeviceCount(&devices);
    std::vector<int> list;
    for (int rank = 0; rank < kRanks; ++rank) list.push_back(rank % devices);
    ncclComm_t comms[kRanks] = {};
    if (!member.expect(ncclCommInitAll(comms, kRanks, list.data()), "ncclCommInitAll")) return;
    cudaStream_t streams[kRanks] = {};
    float* arrays[kRanks] = {};
    for (int rank = 0; rank < kRanks; ++rank) {
      int device = -1;
      member.expect(ncclCommCuDevice(comms[rank], &device), "its device");
      member.check(device == list[static_cast<size_t>(rank)], "it is on the device that was asked for");
      device = -1;
      member.expect(strettoCommDevice(comms[rank], &device), "its device");
      member.check(device == list[static_cast<size_t>(rank)], "and says so by either name");
      cudaSetDevice(device);
      cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking);
      void* memory = nullptr;
      member.expect(ncclMemAlloc(&memory, kArrayBytes), "ncclMemAlloc");
      arrays[rank] = static_cast<float*>(memory);
      std::vector<float> values(kArrayCount);
      for (size_t i = 0; i < kArrayCount; ++i) values[i] = valueOf(rank, i);
      cudaMemcpyAsync(arrays[rank], values.data(), kArrayBytes, cudaMemcpyHostToDevice, streams[rank]);
      cudaStreamSynchronize(streams[rank]);
    }
    cudaSetDevice(0);
    ncclGroupStart();
    for (int rank = 0; rank < kRanks; ++rank) {
      ncclAllReduce(arrays[rank], arrays[rank], kArrayCount, ncclFloat, ncclSum, comms[rank], streams[rank]);
    }
    member.expect(ncclGroupEnd(), "a group");
    int current = -1;
    cudaGetDevice(&current);
    member.check(current == 0, "the thread's device is what it was");
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<float> got(kArrayCount);
      cudaSetDevice(list[static_cast<size_t>(rank)]);
      cudaMemcpyAsync(got.data(), arrays[rank], kArrayBytes, cudaMemcpyDeviceToHost, streams[rank]);
      cudaStreamSynchronize(streams[rank]);
      for (size_t i = 0; i < kArrayCount; ++i) {
        if (got[i] == sumOf(kRanks, i)) continue;
        member.complain("rank %d: element %zu is %g", rank, i, got[i]);
        break;
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) member.expect(ncclCommDestroy(comms[rank]), "destroy");
    for (int rank = 0; rank < kRanks; ++rank) {
      member.expect(ncclMemFree(arrays[rank]), "ncclMemFree");
      cudaSetDevice(list[static_cast<size_t>(rank)]);
      cudaStreamDestroy(streams[rank]);
    }
  });
}

TEST_F(Streams, ChildrenAreOnTheirParentsDevice) {
  asThreads(4, connected([](Member& member) {
              const Arrays arrays(member);
              ncclComm_t half = nullptr;
              member.expect(ncclCommSplit(member.comm, member.rank % 2, member.rank, &half, nullptr),
                            "split");
              int mine = -1, childs = -1;
              ncclCommCuDevice(member.comm, &mine);
              ncclCommCuDevice(half, &childs);
              member.check(mine == childs, "the child is on its parent's device");
              member.expect(ncclAllReduce(arrays.input, arrays.output, kArrayCount, ncclFloat, ncclSum, half,
                                          member.stream()),
                            "the child's all-reduce");
              member.device->synchronize();
              std::vector<float> got(kArrayCount);
              member.device->download(reinterpret_cast<char*>(got.data()),
                                      reinterpret_cast<char*>(arrays.output), kArrayBytes);
              const int other = (member.rank + 2) % 4;
              for (size_t i = 0; i < kArrayCount; ++i) {
                if (got[i] == valueOf(member.rank, i) + valueOf(other, i)) continue;
                member.complain("element %zu is %g", i, got[i]);
                break;
              }
              member.board.meet();
              member.expect(ncclCommDestroy(half), "destroy the child");
              member.board.meet();
            }));
}

// A PreMulSum whose scalar is in device memory reads it when the operation runs.
TEST_F(Streams, AScalarOnTheDeviceIsReadWhenTheOperationRuns) {
  asThreads(
      2, connected([](Member& member) {
        const Arrays arrays(member);
        float* const scalar = arrays.output + kArrayCount;
        const float three = 3;
        ncclRedOp_t op = ncclSum;
        member.expect(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat, ncclScalarDevice, member.comm), "op");
        arrays.fine(cudaMemcpyAsync(scalar, &three, sizeof three, cudaMemcpyHostToDevice, member.stream()),
                    "the scalar");
        member.expect(ncclAllReduce(arrays.input, arrays.output, kArrayCount, ncclFloat, op, member.comm,
                                    member.stream()),
                      "all-reduce");
        member.device->synchronize();
        arrays.expectSum(arrays.output, 3, "three times the sum");
        member.expect(ncclRedOpDestroy(op, member.comm), "op");
      }));
}

}  // namespace
}  // namespace stretto
