// Communicators of GPUs on several hosts, as NCCL_HOSTID says it, served by the real NCCL that
// STRETTO_REAL_NCCL names: that the data is right, also in groups and graphs, beside communicators of our
// own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "communicator/cuda/sums.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kBlockCount = 10000;
constexpr int kHosts = 2;  // of a rank each

class HandOver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
    const char* const path = getenv("STRETTO_REAL_NCCL");
    if (path == nullptr || *path != '/') {
      GTEST_SKIP() << "set STRETTO_REAL_NCCL to the path of NVIDIA's libnccl.so.2 to test against it";
    }
  }
};

float elementOf(int rank, size_t index) {
  return static_cast<float>(rank + 1) * static_cast<float>(index % 97);
}

// Fills the input with this rank's values and forgets what the output held.
void prepare(const Member& member) {
  std::vector<float> values(kBlockCount * kHosts);
  for (size_t i = 0; i < values.size(); ++i) values[i] = elementOf(member.rank, i);
  member.device->upload(member.device->at(0, nullptr), reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
  values.assign(values.size(), -1);
  member.device->upload(member.device->at(1, nullptr), reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
}

template <typename Wanted>
void compare(const Member& member, const char* what, size_t count, Wanted wanted) {
  member.device->synchronize();
  std::vector<float> values(count);
  member.device->download(reinterpret_cast<char*>(values.data()), member.device->at(1, nullptr),
                          count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    if (values[i] == wanted(i)) continue;
    return member.complain("%s: element %zu is %g, not %g", what, i, static_cast<double>(values[i]),
                           static_cast<double>(wanted(i)));
  }
}

float sumAt(size_t index) {
  return elementOf(0, index) + elementOf(1, index);
}

// A communicator of ranks on hosts of their own, around `body`.
Body apart(Body body) {
  return [body = std::move(body)](Member& member) {
    setenv("NCCL_HOSTID", ("stretto-test-host-" + std::to_string(member.rank)).c_str(), 1);
    connected([&body](Member& inside) {
      size_t needed = 0;
      strettoQuestion_t question{};
      question.collective = "all_reduce";
      inside.expect(strettoExplain(inside.comm, &question, nullptr, 0, &needed), "explain", ncclInvalidUsage);
      inside.expectError("explain", {"different hosts", "handed over to NCCL 2."});
      body(inside);
    })(member);
  };
}

void reducing(const Member& member) {
  prepare(member);
  member.expect(ncclAllReduce(inputOf(member), outputOf(member), kBlockCount, ncclFloat, ncclSum, member.comm,
                              member.stream()),
                "all-reduce");
  compare(member, "all-reduce", kBlockCount, sumAt);
  prepare(member);
  member.expect(ncclReduceScatter(inputOf(member), outputOf(member), kBlockCount, ncclFloat, ncclMax,
                                  member.comm, member.stream()),
                "reduce-scatter");
  const size_t mine = static_cast<size_t>(member.rank) * kBlockCount;
  compare(member, "reduce-scatter", kBlockCount, [&](size_t i) { return elementOf(1, mine + i); });
  prepare(member);
  member.expect(ncclReduce(inputOf(member), outputOf(member), kBlockCount, ncclFloat, ncclSum, 1, member.comm,
                           member.stream()),
                "reduce");
  if (member.rank == 1) compare(member, "reduce", kBlockCount, sumAt);
}

void moving(const Member& member) {
  float *const input = inputOf(member), *const output = outputOf(member);
  prepare(member);
  member.expect(ncclAllGather(input, output, kBlockCount, ncclFloat, member.comm, member.stream()),
                "all-gather");
  const auto block = [](size_t i) { return static_cast<int>(i / kBlockCount); };
  compare(member, "all-gather", kBlockCount * kHosts,
          [&](size_t i) { return elementOf(block(i), i % kBlockCount); });
  prepare(member);
  member.expect(ncclAlltoAll(input, output, kBlockCount, ncclFloat, member.comm, member.stream()),
                "all-to-all");
  const size_t mine = static_cast<size_t>(member.rank) * kBlockCount;
  compare(member, "all-to-all", kBlockCount * kHosts,
          [&](size_t i) { return elementOf(block(i), mine + i % kBlockCount); });
  prepare(member);
  member.expect(ncclBroadcast(input, output, kBlockCount, ncclFloat, 1, member.comm, member.stream()),
                "broadcast");
  compare(member, "broadcast", kBlockCount, [](size_t i) { return elementOf(1, i); });
  prepare(member);
  member.expect(ncclGather(input, output, kBlockCount, ncclFloat, 0, member.comm, member.stream()), "gather");
  if (member.rank == 0) {
    compare(member, "gather", kBlockCount * kHosts,
            [&](size_t i) { return elementOf(block(i), i % kBlockCount); });
  }
  prepare(member);
  member.expect(ncclScatter(input, output, kBlockCount, ncclFloat, 0, member.comm, member.stream()),
                "scatter");
  compare(member, "scatter", kBlockCount, [&](size_t i) { return elementOf(0, mine + i); });
}

void grouped(const Member& member) {
  prepare(member);
  const int peer = 1 - member.rank;
  ncclGroupStart();
  member.expect(ncclSend(inputOf(member), kBlockCount, ncclFloat, peer, member.comm, member.stream()),
                "send");
  member.expect(ncclRecv(outputOf(member), kBlockCount, ncclFloat, peer, member.comm, member.stream()),
                "receive");
  member.expect(ncclGroupEnd(), "group");
  compare(member, "exchange", kBlockCount, [&](size_t i) { return elementOf(peer, i); });
}

TEST_F(HandOver, EveryOperation) {
  asProcesses(kHosts, apart([](Member& member) {
                reducing(member);
                moving(member);
                grouped(member);
                ncclResult_t state = ncclInternalError;
                member.expect(ncclCommGetAsyncError(member.comm, &state), "ask");
                member.expect(state, "state");
              }),
              120);
}

TEST_F(HandOver, OperatorsRegistrationsAndMemory) {
  asProcesses(
      kHosts, apart([](Member& member) {
        ncclRedOp_t half = ncclSum;
        float scalar = 0.5f;
        member.expect(
            ncclRedOpCreatePreMulSum(&half, &scalar, ncclFloat, ncclScalarHostImmediate, member.comm),
            "operator");
        void* handle = nullptr;
        member.expect(ncclCommRegister(member.comm, inputOf(member), kBlockCount * sizeof(float), &handle),
                      "register");
        prepare(member);
        member.expect(ncclAllReduce(inputOf(member), outputOf(member), kBlockCount, ncclFloat, half,
                                    member.comm, member.stream()),
                      "all-reduce");
        compare(member, "half", kBlockCount, [](size_t i) { return sumAt(i) / 2; });
        member.expect(ncclCommDeregister(member.comm, handle), "deregister");
        member.expect(ncclRedOpDestroy(half, member.comm), "no operator");
        void* memory = nullptr;
        if (!member.expect(ncclMemAlloc(&memory, size_t{1} << 20), "allocate")) return;
        ncclWindow_t window = nullptr;
        member.expect(
            ncclCommWindowRegister(member.comm, memory, size_t{1} << 20, &window, NCCL_WIN_COLL_SYMMETRIC),
            "window");
        if (window != nullptr) {
          member.expect(ncclCommWindowDeregister(member.comm, window), "no window");
        }
        member.expect(ncclMemFree(memory), "free");
      }),
      120);
}

TEST_F(HandOver, Graphs) {
  asProcesses(kHosts, apart([](Member& member) {
                prepare(member);
                const auto enqueue = [&] {
                  return member.expect(ncclAllReduce(inputOf(member), outputOf(member), kBlockCount,
                                                     ncclFloat, ncclSum, member.comm, member.stream()),
                                       "captured");
                };
                member.check(member.device->inGraph(enqueue, 10, [&] { return member.board.meet(); }),
                             "graph");
                compare(member, "graph", kBlockCount, sumAt);
              }),
              120);
}

// The parent is on two hosts; a child of one rank is not, and is ours.
TEST_F(HandOver, ChildrenOnOneHostStayHere) {
  asProcesses(kHosts, apart([](Member& member) {
                ncclComm_t alone = nullptr;
                member.expect(ncclCommSplit(member.comm, member.rank, 0, &alone, nullptr), "split");
                size_t needed = 0;
                strettoQuestion_t question{};
                question.collective = "all_reduce";
                question.type = ncclFloat;
                question.bytes = 1024;
                member.expect(strettoExplain(alone, &question, nullptr, 0, &needed), "explain");
                member.expect(ncclCommDestroy(alone), "destroy");
                grouped(member);
              }),
              120);
}

// A rank waits in NCCL's kernel for one that never comes.
TEST_F(HandOver, AnAbortEndsTheirKernels) {
  asProcesses(kHosts, apart([](Member& member) {
                reducing(member);  // connected
                member.board.meet();
                if (member.rank == 0) {
                  member.expect(ncclAllReduce(inputOf(member), outputOf(member), kBlockCount, ncclFloat,
                                              ncclSum, member.comm, member.stream()),
                                "all-reduce");
                  std::this_thread::sleep_for(std::chrono::milliseconds(300));
                }
                member.board.meet();
                member.expect(ncclCommAbort(member.comm), "abort");
                member.comm = nullptr;
                const auto ended = [&] { return cudaStreamQuery(member.stream()) != cudaErrorNotReady; };
                member.check(eventually(10, ended), "the kernel goes on after the abort");
              }),
              120);
}

}  // namespace
}  // namespace stretto
