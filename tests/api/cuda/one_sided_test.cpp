// Puts, signals and waits for signals between ranks on GPUs, through nccl.h: what arrives, on streams and in
// graphs, what a wrong call is told, and what ends a wait. Ranks share the devices that there are.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "api/cuda/sides.hpp"
#include "harness/recorded.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr int kOneSidedRanks = 3;

class OneSidedOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

// A rank's memory: what it sends, and a window that others put into.
class PutWindow {
 public:
  explicit PutWindow(Member& member) : member_(member) {
    member.expect(
        ncclCommWindowRegister(member.comm, begin(), kWindowBytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
        "register");
  }
  char* begin() const { return member_.device->at(1, nullptr); }
  char* input() const { return member_.device->at(0, nullptr); }
  ncclWindow_t handle() const { return window_; }

  void write(const std::vector<uint32_t>& values) const {
    member_.device->upload(input(), reinterpret_cast<const char*>(values.data()), 4 * values.size());
  }
  bool put(size_t count, int peer, size_t offset, cudaStream_t stream, int index = 0) const {
    return member_.expect(
        ncclPutSignal(input(), count, ncclUint32, peer, window_, offset, index, 0, 0, member_.comm, stream),
        "put");
  }
  void expect(const std::vector<uint32_t>& wanted, size_t offset, const char* what) const {
    std::vector<uint32_t> got(wanted.size());
    member_.device->download(reinterpret_cast<char*>(got.data()), begin() + offset, 4 * got.size());
    const auto differs = std::mismatch(wanted.begin(), wanted.end(), got.begin());
    if (differs.first == wanted.end()) return;
    member_.complain("%s: element %td of %zu is %u, not %u", what, differs.first - wanted.begin(),
                     wanted.size(), *differs.second, *differs.first);
  }
  void deregister() { member_.expect(ncclCommWindowDeregister(member_.comm, window_), "deregister"); }

 private:
  Member& member_;
  ncclWindow_t window_ = nullptr;
};

bool waitFor(const Member& member, int peer, int count, cudaStream_t stream, int index = 0) {
  ncclWaitSignalDesc_t wanted{count, peer, index, 0};
  return member.expect(ncclWaitSignal(1, &wanted, member.comm, stream), "wait");
}
void synchronise(const Member& member, cudaStream_t stream) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) member.complain("synchronise: %s", cudaGetErrorString(error));
  ncclResult_t later = ncclSuccess;
  member.expect(ncclCommGetAsyncError(member.comm, &later), "asked for an error");
  member.expect(later, "an asynchronous error");
}
std::vector<uint32_t> valuesOf(int rank, size_t count) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), static_cast<uint32_t>(rank) << 24);
  return values;
}

// One block, and many; at odd places.
TEST_F(OneSidedOnGpus, PutsArriveBeforeTheirSignals) {
  asThreads(kOneSidedRanks, connected([](Member& member) {
              PutWindow window(member);
              const int next = (member.rank + 1) % kOneSidedRanks, last = (member.rank + 2) % kOneSidedRanks;
              const cudaStream_t stream = member.device->stream();
              for (const size_t count : {size_t{1}, size_t{3}, size_t{1000}, size_t{9000}, size_t{1000001}}) {
                window.write(valuesOf(member.rank, count));
                member.board.meet();
                if (!window.put(count, next, 12, stream) || !waitFor(member, last, 1, stream)) return;
                synchronise(member, stream);
                window.expect(valuesOf(last, count), 12, "a put");
              }
              member.board.meet();
              window.deregister();
            }));
}

// To itself as to others, from group calls, beside sends and collectives, and for who waits late.
TEST_F(OneSidedOnGpus, GoWithOtherOperationsOfTheirGroup) {
  constexpr size_t kCount = 500;
  asThreads(kOneSidedRanks, connected([](Member& member) {
              PutWindow window(member);
              const cudaStream_t stream = member.device->stream();
              window.write(valuesOf(member.rank, kCount));
              for (int round = 0; round < 5; ++round) {
                member.expect(ncclGroupStart(), "group");
                for (int peer = 0; peer < kOneSidedRanks; ++peer) {
                  waitFor(member, peer, 1, stream);
                  window.put(kCount, peer, 4096 * static_cast<size_t>(member.rank), stream);
                }
                member.expect(ncclAllReduce(window.input(), window.input() + 65536, kCount, ncclUint32,
                                            ncclSum, member.comm, stream),
                              "all-reduce");
                member.expect(ncclGroupEnd(), "group end");
                synchronise(member, stream);
                for (int peer = 0; peer < kOneSidedRanks; ++peer) {
                  window.expect(valuesOf(peer, kCount), 4096 * static_cast<size_t>(peer), "a put of a group");
                }
                member.device->upload(window.begin(), std::vector<char>(3 * 4096).data(), 3 * 4096);
                member.board.meet();
              }
              window.deregister();
            }));
}

TEST_F(OneSidedOnGpus, GraphsCountTheirSignals) {
  constexpr size_t kCount = 20000;
  constexpr int kReplays = 20;
  asThreads(2, connected([](Member& member) {
              PutWindow window(member);
              const cudaStream_t stream = member.device->stream();
              const int peer = 1 - member.rank;
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t executable = nullptr;
              // An operation before the capture makes the windows of both.
              if (!window.put(1, peer, 0, stream) || !waitFor(member, peer, 1, stream)) return;
              synchronise(member, stream);
              cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
              window.put(kCount, peer, 0, stream);
              waitFor(member, peer, 1, stream);
              member.expect(ncclSignal(peer, 1, 0, 0, member.comm, stream), "signal");
              waitFor(member, peer, 1, stream, 1);
              if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
                  cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) {
                return member.complain("no graph");
              }
              for (uint32_t replay = 0; replay < kReplays; ++replay) {
                window.write(std::vector<uint32_t>(kCount, replay + 7 * static_cast<uint32_t>(member.rank)));
                member.board.meet();
                cudaGraphLaunch(executable, stream);
                synchronise(member, stream);
                window.expect(std::vector<uint32_t>(kCount, replay + 7 * static_cast<uint32_t>(peer)), 0,
                              "a replay");
                member.board.meet();
              }
              cudaGraphExecDestroy(executable);
              cudaGraphDestroy(graph);
              window.deregister();
            }));
}

TEST_F(OneSidedOnGpus, WrongCallsAreRefused) {
  asThreads(2, connected([](Member& member) {
              PutWindow window(member);
              const cudaStream_t stream = member.device->stream();
              const auto put = [&](const void* from, size_t count, int peer, ncclWindow_t to, size_t offset) {
                return ncclPutSignal(from, count, ncclUint32, peer, to, offset, 0, 0, 0, member.comm, stream);
              };
              member.expect(put(window.input(), 4, 2, window.handle(), 0), "peer", ncclInvalidArgument);
              member.expect(put(window.input(), kWindowBytes / 4, 1, window.handle(), 4), "room",
                            ncclInvalidArgument);
              member.expectError("room", {"from byte 4 on", "2 ranks"});
              member.expect(put(window.input(), (size_t{1} << 62) + 1, 1, window.handle(), 0), "overflow",
                            ncclInvalidArgument);
              member.expect(put(nullptr, 4, 1, window.handle(), 0), "null", ncclInvalidArgument);
              std::vector<uint32_t> host(4);
              member.expect(put(host.data(), 4, 1, window.handle(), 0), "host memory", ncclInvalidArgument);
              member.board.meet();
              window.deregister();
              member.expect(put(window.input(), 4, 1, window.handle(), 0), "no window", ncclInvalidUsage);
            }));
}

TEST_F(OneSidedOnGpus, NobodySignalsWhoHasFinalised) {
  asThreads(2, connected([](Member& member) {
              const cudaStream_t stream = member.device->stream();
              const int peer = 1 - member.rank;
              member.expect(ncclSignal(peer, 0, 0, 0, member.comm, stream), "signal");
              if (!waitFor(member, peer, 1, stream)) return;
              synchronise(member, stream);
              if (member.rank == 1) {
                member.expect(ncclCommDestroy(member.comm), "destroy");
                member.comm = nullptr;
                member.board.meet();
                return;
              }
              member.board.meet();
              member.expect(ncclSignal(1, 0, 0, 0, member.comm, stream), "a late signal", ncclRemoteError);
              member.expectError("a late signal", {"rank 1", "finalised"});
            }));
}

// Each by itself, whether a collective comes after it or not.
TEST_F(OneSidedOnGpus, AreRecordedAsDoneOnceTheyHaveEnded) {
  asThreads(2, connected([](Member& member) {
              const cudaStream_t stream = member.device->stream();
              const int peer = 1 - member.rank;
              member.expect(ncclSignal(peer, 0, 0, 0, member.comm, stream), "signal");
              if (!waitFor(member, peer, 1, stream)) return;
              if (member.rank == 0) waitFor(member, 1, 1, stream);
              if (member.rank == 0) expectStates(member, "ddr");
              if (!member.board.meet()) return;
              if (member.rank == 1) member.expect(ncclSignal(0, 0, 0, 0, member.comm, stream), "signal");
              expectStates(member, "ddd");
            }));
}

// Nobody will signal: what waits is told, and by whom it is not signalled.
TEST_F(OneSidedOnGpus, WhoWaitsForSignalsOfItsOwnIsTold) {
  asThreads(2, connected([](Member& member) {
              const cudaStream_t stream = member.device->stream();
              if (member.rank == 0) {
                waitFor(member, 0, 1, stream);
                member.check(streamEnds(member, 30), "it waits for itself");
                member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
                member.expect(errorOf(member), "the error", ncclInvalidUsage);
                member.expectError("the wait", {"signals of its own"});
              }
              member.board.meet();
            }));
}

TEST_F(OneSidedOnGpus, WaitsInACircleAreTold) {
  asThreads(2, connected([](Member& member) {
              waitFor(member, 1 - member.rank, 1, member.device->stream());
              member.board.meet();
              member.check(eventually(30, [&] { return errorOf(member) != ncclSuccess; }),
                           "it waits for ever");
              member.expect(errorOf(member), "the error", ncclInvalidUsage);
              member.check(streamEnds(member, 30), "the kernel waits on");
            }));
}

TEST_F(OneSidedOnGpus, WhoWaitsForARankThatHasLeftIsTold) {
  asThreads(2, connected([](Member& member) {
              const cudaStream_t stream = member.device->stream();
              const int peer = 1 - member.rank;
              member.expect(ncclSignal(peer, 0, 0, 0, member.comm, stream), "signal");
              if (!waitFor(member, peer, 1, stream)) return;
              synchronise(member, stream);
              if (member.rank == 1) return;
              waitFor(member, 1, 1, stream);
              member.check(streamEnds(member, 30), "it waits on");
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expect(errorOf(member), "the error", ncclRemoteError);
              member.expectError("the wait", {"1 signals of rank 1", "finalised", "without sending them"});
            }));
}

TEST_F(OneSidedOnGpus, AnAbortEndsAWait) {
  asThreads(2, connected([](Member& member) {
              if (member.rank == 0) waitFor(member, 1, 1, member.device->stream());
              expectAbortEnds(member);
            }));
}

}  // namespace
}  // namespace stretto
