// What happens to ranks on GPUs when one of them dies, aborts, disagrees or is used wrongly.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/scoped_variable.hpp"
#include "communicator/cuda/sums.hpp"
#include "harness/cuda/endings.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kLargeCount = 6000000;

class OnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};
class Failure : public OnGpus {};
class Refusal : public OnGpus {};

void abort(Member& member) {
  const Canary canary;
  const double began = secondsNow();
  member.expect(ncclCommAbort(member.comm), "abort");
  member.comm = nullptr;
  const double took = secondsNow() - began;
  if (took > abortLimit(canary, 1)) member.complain("ncclCommAbort took %.2f s", took);
}

// The body of a rank that survives: it waits in an operation for rank 0, which dies at word(1).
void survive(Member& member, const std::function<bool()>& enqueue) {
  const bool enqueued = enqueue();
  member.board.word(0).fetch_add(1);
  if (!enqueued || !member.check(eventually(20, [&] { return member.board.word(1) != 0; }), "no kill"))
    return;
  const double killed = secondsNow();
  member.check(streamEnds(member, 5), "the kernel went on after a rank had died");
  const double took = secondsNow() - killed;
  if (took > 1) member.complain("kernels ended %.2f s after a rank was killed", took);
  member.check(eventually(1, [&] { return errorOf(member) != ncclSuccess; }), "no error after a death");
  member.expect(errorOf(member), "the error", ncclRemoteError);
  member.expectError("the loss", {"rank 0", "lost"});
  member.expect(sum(member), "an operation afterwards", ncclRemoteError);
  abort(member);
}

void killWhileOthersWait(int ranks, const std::function<bool(Member&)>& enqueue) {
  const Board board(ranks);
  Processes processes(board, connected([&](Member& member) {
                        member.expect(sum(member), "a first operation");
                        member.device->synchronize();
                        if (member.rank != 0) return survive(member, [&] { return enqueue(member); });
                        for (;;) pause();
                      }),
                      100);
  EXPECT_TRUE(eventually(60, [&] { return board.word(0) == static_cast<uint64_t>(ranks - 1); }));
  processes.kill(0);
  board.word(1) = 1;
  processes.finish(0);
}

TEST_F(Failure, OfOneRankFreesTheOthersKernels) {
  killWhileOthersWait(3, [](Member& member) { return member.expect(sum(member), "all-reduce"); });
}

TEST_F(Failure, OfOneRankFreesTheOthersGraphs) {
  killWhileOthersWait(2, [](Member& member) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamBeginCapture(member.stream(), cudaStreamCaptureModeThreadLocal);
    bool fine = member.expect(sum(member), "captured");
    fine = fine && cudaStreamEndCapture(member.stream(), &graph) == cudaSuccess;
    fine = fine && cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
    for (int i = 0; fine && i < 10; ++i) fine = cudaGraphLaunch(executable, member.stream()) == cudaSuccess;
    return member.check(fine, "a graph");
  });
}

TEST_F(Failure, OfOneRankFreesATransfer) {
  killWhileOthersWait(2, [](Member& member) {
    return member.expect(ncclRecv(outputOf(member), kSummedCount, ncclFloat, 0, member.comm, member.stream()),
                         "receive");
  });
}

TEST_F(Failure, OfOneRankFreesManyLargeTransfers) {
  killWhileOthersWait(2, [](Member& member) {
    ncclGroupStart();
    for (int i = 0; i < 40; ++i) {  // more than rings of 32 hold: each takes a chunk of every channel
      ncclSend(inputOf(member), kSummedCount, ncclFloat, 0, member.comm, member.stream());
    }
    return member.expect(ncclGroupEnd(), "sends");
  });
}

// Many chunks of lines, in two stages that run at once; the peer never comes.
TEST_F(Failure, AnAbortEndsStagesOfManyChunks) {
  for (const char* protocol : {"lines", "wide", "runs"}) {
    asThreads(2, connected([&](Member& member) {
                member.expect(sum(member), "a first operation");
                member.device->synchronize();
                member.expect(strettoCommForce(member.comm, "all_reduce", "one_shot", protocol, 0, 0),
                              protocol);
                if (member.rank == 0) {
                  member.expect(sum(member, kLargeCount), "all-reduce");
                  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it has begun
                  abort(member);
                  member.check(streamEnds(member, 1), "the kernel went on after the abort");
                  member.board.meet();
                  return;
                }
                member.board.meet();
                abort(member);
              }));
  }
}

// Peers are told, and their kernels end too.
TEST_F(Failure, AnAbortEndsWaitsHereAndThere) {
  asThreads(2, connected([](Member& member) {
              member.expect(sum(member), "a first operation");
              member.device->synchronize();
              if (member.rank == 0) {
                member.expect(sum(member), "all-reduce");
                member.expect(sum(member), "all-reduce");
                member.board.meet();
                abort(member);
                member.check(streamEnds(member, 1), "kernels went on after the abort");
                member.board.meet();
                return;
              }
              member.expect(
                  ncclRecv(outputOf(member), kSummedCount, ncclFloat, 0, member.comm, member.stream()),
                  "receive");
              member.board.meet();
              member.check(streamEnds(member, 2), "a peer's kernel went on after the abort");
              member.check(eventually(1, [&] { return errorOf(member) != ncclSuccess; }),
                           "no error after an abort");
              member.expectError("the abort", {"rank 0", "ncclCommAbort"});
              member.board.meet();
              abort(member);
            }));
}

TEST_F(Failure, RanksThatDisagreeAreNamed) {
  asThreads(2, connected([](Member& member) {
              member.expect(sum(member), "a first operation");
              member.device->synchronize();
              member.expect(sum(member, member.rank == 0 ? kSummedCount : kSummedCount - 1), "all-reduce");
              member.check(streamEnds(member, 10), "a disagreement hangs");
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expect(errorOf(member), "the error", ncclInvalidUsage);
              member.expectError("the disagreement",
                                 {"ranks disagree", "100000", "99999", "rank 0", "rank 1", "all_reduce"});
              member.board.meet();
              abort(member);
            }));
}

// What a call wants beside the sum: the kernels of these calls differ, and put the same tokens in the same
// lines.
struct Wanted {
  strettoScale_t scaling;
  ncclDataType_t quantised;
};
ncclResult_t addNorm(const Member& member, const Wanted& wanted, size_t hidden = 264) {
  constexpr size_t kTokens = 5;
  const size_t elements = kTokens * hidden;
  float* const results = outputOf(member);
  strettoAddRmsNorm_t norm = STRETTO_ADD_RMS_NORM_INITIALIZER;
  norm.tokens = kTokens;
  norm.hidden = hidden;
  norm.type = ncclFloat;
  norm.epsilon = 1e-6f;
  norm.input = inputOf(member);
  norm.residual = norm.residualOut = results;
  norm.gamma = inputOf(member) + elements;
  norm.normalised = results + elements;
  norm.scaling = wanted.scaling;
  norm.quantisedType = wanted.quantised;
  norm.quantised = results + 2 * elements;
  norm.scales = results + 3 * elements;
  return strettoAllReduceAddRmsNorm(&norm, member.comm, member.stream());
}

struct Parted {
  Wanted others, its;  // of rank 1
  std::vector<std::string> words;
};

void expectPartedAreNamed(int ranks, const Parted& parted) {
  asThreads(ranks, connected([&](Member& member) {
              member.expect(addNorm(member, parted.others), "a first operation");
              member.device->synchronize();
              member.expect(addNorm(member, member.rank == 1 ? parted.its : parted.others), "the call");
              member.check(streamEnds(member, 60), "a disagreement hangs");
              member.check(eventually(30, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expect(errorOf(member), "the error", ncclInvalidUsage);
              member.expectError("the disagreement", {"ranks disagree", "rank 1", "all_reduce_add_rms_norm"});
              member.expectError("the disagreement", parted.words);
              member.board.meet();
              abort(member);
            }));
}

TEST_F(Failure, RanksThatDisagreeAboutAnEightBitCopyAreNamed) {
  const Wanted none{strettoScaleNone, ncclFloat8e4m3}, perToken{strettoScalePerToken, ncclFloat8e4m3};
  const Wanted perTensor{strettoScalePerTensor, ncclFloat8e4m3}, wider{strettoScalePerToken, ncclFloat8e5m2};
  const Parted all[] = {
      {none, perToken, {", residual", "to float8e4m3 per token"}},
      {perTensor, none, {"to float8e4m3 per tensor"}},
      {perToken, perTensor, {"to float8e4m3 per token", "to float8e4m3 per tensor"}},
      {perToken, wider, {"to float8e4m3 per token", "to float8e5m2 per token"}},
  };
  for (const int ranks : {2, 3}) {
    for (const Parted& parted : all) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + parted.words.back());
      expectPartedAreNamed(ranks, parted);
    }
  }
}

// The last rank does not call what the others wait for, and aborts.
void expectAbortEnds(int ranks, const std::function<bool(const Member&)>& force,
                     const std::function<bool(const Member&)>& enqueue) {
  asThreads(ranks, connected([&](Member& member) {
              const bool absent = member.rank == ranks - 1;
              member.expect(sum(member), "a first operation");
              member.device->synchronize();
              force(member);
              if (!absent) enqueue(member);
              std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it has begun
              member.board.meet();
              if (absent) abort(member);
              const Canary canary;
              member.check(streamEnds(member, abortLimit(canary, 1)), "the kernel went on after the abort");
              member.board.meet();
              if (!absent) abort(member);
            }));
}

// So few elements that some threads of the last warp that has lines have none, and wait for nothing, when the
// warp gives up its first wait. Later all of its threads have failed.
constexpr size_t kElementsOfNoWholeWarp = 150;

TEST_F(Failure, AnAbortEndsWarpsOfWhichSomeThreadsHaveNoLine) {
  for (const char* algorithm : {"one_shot", "two_shot"}) {
    for (const char* protocol : {"ll", "ll128", "lamport"}) {
      SCOPED_TRACE(std::string(algorithm) + " " + protocol);
      const auto force = [&](const Member& member) {
        return member.expect(strettoCommForce(member.comm, "all_reduce", algorithm, protocol, 0, 1),
                             protocol);
      };
      expectAbortEnds(3, force, [](const Member& member) {
        return member.expect(sum(member, kElementsOfNoWholeWarp), "all-reduce");
      });
    }
  }
}

// Tokens of 40 lines, which threads keep in registers, and of 41, the last of them half empty, which they do
// not.
TEST_F(Failure, AnAbortEndsWarpsOfATokenOfWhichSomeThreadsHaveNoLine) {
  for (const int ranks : {2, 3}) {
    for (const size_t hidden : {size_t{160}, size_t{162}}) {
      for (const char* algorithm : {"one_shot", "two_shot"}) {
        if (ranks == 2 && std::string(algorithm) == "two_shot") continue;  // there is none
        SCOPED_TRACE(std::string(algorithm) + " of " + std::to_string(ranks) + " ranks, " +
                     std::to_string(hidden));
        const auto force = [&](const Member& member) {
          return member.expect(
              strettoCommForce(member.comm, "all_reduce_add_rms_norm", algorithm, "lamport", 0, 0),
              algorithm);
        };
        expectAbortEnds(ranks, force, [hidden](const Member& member) {
          return member.expect(addNorm(member, {strettoScaleNone, ncclFloat8e4m3}, hidden),
                               "all-reduce with RMSNorm");
        });
      }
    }
  }
}

TEST_F(Failure, AWaitHasADeadline) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", "1");
  asThreads(2, connected([](Member& member) {
              if (member.rank == 0) {
                member.expect(sum(member), "all-reduce");
                member.check(streamEnds(member, 10), "a wait went on after its deadline");
                member.check(eventually(1, [&] { return errorOf(member) != ncclSuccess; }), "no error");
                member.expectError("the deadline", {"STRETTO_TIMEOUT", "rank 1"});
              }
              member.board.meet();
              abort(member);
            }));
}

// Many operations were enqueued since, each of which has to notice that it is over; the one that differs is
// still named.
TEST_F(Failure, ADisagreementIsNamedLongAfterItsCall) {
  constexpr int kBefore = 3, kAfter = 40;
  asThreads(2, connected([](Member& member) {
              for (int i = 0; i < kBefore; ++i) member.expect(sum(member, 10), "all-reduce");
              member.expect(sum(member, member.rank == 0 ? 21 : 22), "all-reduce");
              for (int i = 0; i < kAfter; ++i) {
                const ncclResult_t result = sum(member, 10);
                if (result != ncclSuccess && result != ncclInvalidUsage) member.expect(result, "all-reduce");
              }
              member.check(streamEnds(member, 30), "a disagreement hangs");
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expectError("the disagreement", {"ranks disagree", "#4", "x 21", "x 22"});
              member.board.meet();
              abort(member);
            }));
}

// Both ranks are the root of a broadcast. Where nobody waits for the other, what each has sent lies there:
// the next broadcast is right, or its rank is told.
void broadcastFromTwoRoots(Member& member, const char* algorithm, const char* protocol) {
  constexpr size_t kCount = 256;
  member.expect(strettoCommForce(member.comm, "broadcast", algorithm, protocol, 0, 0), "force");
  const auto broadcast = [&](float value, int root) {
    std::vector<float> all(kCount, value);
    const size_t bytes = kCount * sizeof(float);
    cudaMemcpyAsync(inputOf(member), all.data(), bytes, cudaMemcpyHostToDevice, member.stream());
    const ncclResult_t result = ncclBroadcast(inputOf(member), inputOf(member), kCount, ncclFloat, root,
                                              member.comm, member.stream());
    member.check(streamEnds(member, 30), "a disagreement hangs");
    cudaMemcpyAsync(all.data(), inputOf(member), bytes, cudaMemcpyDeviceToHost, member.stream());
    cudaStreamSynchronize(member.stream());
    return std::pair(result == ncclSuccess ? errorOf(member) : result, all);
  };
  const float rank = static_cast<float>(member.rank);
  (void)broadcast(10 + rank, member.rank);
  member.board.meet();
  const auto [result, values] = broadcast(20 + rank, 1);
  member.check(result == ncclInvalidUsage || values == std::vector<float>(kCount, 21),
               "a broadcast that succeeded gave what an earlier one had sent");
  if (result != ncclSuccess) member.expectError("the disagreement", {"ranks disagree", "root 0", "root 1"});
  member.board.meet();
  abort(member);
}

TEST_F(Failure, TwoRootsOfABroadcastLeaveNothingForTheNext) {
  for (const auto& [algorithm, protocol] :
       {std::pair("chain", "simple"), std::pair("flat", "simple"), std::pair("push", "ll"),
        std::pair("push", "ll128"), std::pair("push", "warp_chunks")}) {
    SCOPED_TRACE(std::string(algorithm) + "/" + protocol);
    asThreads(2, connected([algorithm = algorithm, protocol = protocol](Member& member) {
                broadcastFromTwoRoots(member, algorithm, protocol);
              }));
  }
}

// Nobody asks: the other's thread hears of it. Where they share a GPU the rank that leaves waits for the
// kernel that waits for it.
TEST_F(Failure, ARankThatLeavesWithoutTheOperationIsNamed) {
  asThreads(2, connected([](Member& member) {
              member.expect(sum(member), "a first operation");
              member.device->synchronize();
              if (member.rank == 0) member.expect(sum(member), "all-reduce");
              member.board.meet();
              if (member.rank == 1) {
                member.expect(ncclCommDestroy(member.comm), "destroy");
                member.comm = nullptr;
                return;
              }
              member.check(streamEnds(member, 10), "a silent hang");
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expectError("the absence", {"rank 1", "finalised"});
              abort(member);
            }));
}

TEST_F(Failure, OfAnOperationAfterARankHasLeftIsTold) {
  asThreads(2, connected([](Member& member) {
              member.expect(sum(member), "a first operation");
              member.expect(
                  member.rank == 0
                      ? ncclSend(inputOf(member), kSummedCount, ncclFloat, 1, member.comm, member.stream())
                      : ncclRecv(outputOf(member), kSummedCount, ncclFloat, 0, member.comm, member.stream()),
                  "a transfer");
              member.device->synchronize();
              if (member.rank == 1) {
                member.expect(ncclCommDestroy(member.comm), "destroy");
                member.comm = nullptr;
              }
              member.board.meet();
              if (member.rank == 1) return;
              (void)sum(member);  // which may be before the news
              member.check(streamEnds(member, 10), "a silent hang");
              member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
              member.expectError("the absence", {"rank 1", "finalised"});
              abort(member);
            }));
}

TEST_F(Refusal, OfHostMemory) {
  asThreads(2, connected([](Member& member) {
              std::vector<float> host(kSummedCount);
              member.expect(ncclAllReduce(host.data(), outputOf(member), kSummedCount, ncclFloat, ncclSum,
                                          member.comm, member.stream()),
                            "host memory", ncclInvalidArgument);
              member.expectError("host memory", {"send buffer", "host memory", "STRETTO_DEVICE=cpu"});
              member.expect(sum(member), "it can still be used");
              member.device->synchronize();
              member.expect(errorOf(member), "and is healthy");
            }));
}

// Of ranks on one device.
void expectSharingIsRefused(int ranks, const char* sharing, const std::vector<std::string>& words) {
  const ScopedVariable said("STRETTO_SHARED_DEVICE", sharing);
  asThreads(ranks, [&](Member& member) {
    member.device = OnDevice::make(0);
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    member.expect(ncclCommInitRank(&member.comm, member.ranks(), id, member.rank), "init", ncclInvalidUsage);
    member.check(member.comm == nullptr, "no handle is left");
    member.expectError("sharing", words);
  });
}

TEST_F(Refusal, OfADeviceThatIsSharedUnsaid) {
  expectSharingIsRefused(2, "0", {"ranks 0 and 1", "STRETTO_SHARED_DEVICE=1", "cudaSetDevice"});
}

TEST_F(Refusal, OfMoreKernelsAtOnceThanADeviceHolds) {
  expectSharingIsRefused(2, "1000", {"STRETTO_SHARED_DEVICE=1000", "multiprocessors"});
}

TEST_F(Refusal, OfMoreRanksThanADeviceHolds) {
  if (!kEmulated) GTEST_SKIP() << "no GPU has as few multiprocessors as an emulated one, which has four";
  expectSharingIsRefused(5, "1", {"5 ranks are more than the 4 multiprocessors"});
}

TEST_F(Refusal, OfRanksInDifferentPlaces) {
  asProcesses(2, [](Member& member) {
    setenv("STRETTO_DEVICE", member.rank == 0 ? "cuda" : "cpu", 1);
    if (member.rank == 0) member.device = OnDevice::make(0);
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclInvalidUsage);
    member.expectError("places", {"rank 0 on a GPU", "rank 1 in host memory", "STRETTO_DEVICE"});
  });
}

// What a communicator took of the device comes back, however it ends.
TEST_F(Failure, MemoryComesBack) {
  constexpr size_t kTolerated = size_t{8} << 20;
  asThreads(2, [](Member& member) {
    member.device = OnDevice::make(member.rank);
    size_t before = 0, after = 0, total = 0;
    for (int round = 0; round < 6; ++round) {
      ncclUniqueId id;
      if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
      if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return;
      member.expect(sum(member), "all-reduce");
      member.device->synchronize();
      if (round % 2 == 0) {
        member.expect(ncclCommDestroy(member.comm), "destroy");
      } else {
        member.expect(ncclCommAbort(member.comm), "abort");
      }
      member.board.meet();
      if (round == 1) cudaMemGetInfo(&before, &total);
    }
    cudaMemGetInfo(&after, &total);
    if (after + kTolerated < before) member.complain("%zu bytes did not come back", before - after);
    member.comm = nullptr;
  });
}

}  // namespace
}  // namespace stretto
