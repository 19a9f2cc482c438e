// Ranks on GPUs of several hosts, whose links a proxy moves: threads of one process over a net that is made
// up, and over TCP; processes that say that they are on hosts of their own.
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/scoped_variable.hpp"
#include "communicator/core/far.hpp"
#include "communicator/cuda/sums.hpp"
#include "harness/device_mode.hpp"
#include "harness/explained.hpp"
#include "harness/made_up_net.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kMost = size_t{1} << 20;  // floats

float valueOf(int rank, size_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 97);
}

void fill(const Member& member, size_t count) {
  std::vector<float> mine(count);
  for (size_t i = 0; i < count; ++i) mine[i] = valueOf(member.rank, i);
  member.device->upload(reinterpret_cast<char*>(inputOf(member)), reinterpret_cast<const char*>(mine.data()),
                        count * sizeof(float));
}

template <typename Wanted>
bool holds(const Member& member, size_t count, const char* what, Wanted wanted) {
  std::vector<float> got(count);
  member.device->synchronize();
  member.device->download(reinterpret_cast<char*>(got.data()),
                          reinterpret_cast<const char*>(outputOf(member)), count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    if (got[i] == wanted(i)) continue;
    member.complain("%s of %zu: element %zu is %g, not %g", what, count, i, static_cast<double>(got[i]),
                    static_cast<double>(wanted(i)));
    return false;
  }
  return true;
}

float sumOf(const Member& member, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < member.ranks(); ++rank) sum += valueOf(rank, i);
  return sum;
}

bool sumsRight(Member& member, const std::vector<size_t>& counts) {
  for (const size_t count : counts) {
    fill(member, count);
    const ncclResult_t result = ncclAllReduce(inputOf(member), outputOf(member), count, ncclFloat, ncclSum,
                                              member.comm, member.stream());
    if (!member.expect(result, "all-reduce")) return false;
    if (!holds(member, count, "all-reduce", [&](size_t i) { return sumOf(member, i); })) return false;
  }
  return true;
}

bool othersRight(Member& member, size_t count) {
  const int ranks = member.ranks();
  const auto all = count * static_cast<size_t>(ranks);
  fill(member, all);
  const auto run = [&](const char* what, ncclResult_t result, size_t results, const auto& wanted) {
    return member.expect(result, what) && holds(member, results, what, wanted);
  };
  float* const in = inputOf(member);
  float* const out = outputOf(member);
  const ncclComm_t comm = member.comm;
  const cudaStream_t stream = member.stream();
  const size_t own = count * static_cast<size_t>(member.rank);
  bool right = run("all-gather", ncclAllGather(in, out, count, ncclFloat, comm, stream), all,
                   [&](size_t i) { return valueOf(static_cast<int>(i / count), i % count); });
  right = right && run("reduce-scatter", ncclReduceScatter(in, out, count, ncclFloat, ncclSum, comm, stream),
                       count, [&](size_t i) { return sumOf(member, own + i); });
  right = right && run("broadcast", ncclBroadcast(in, out, count, ncclFloat, ranks - 1, comm, stream), count,
                       [&](size_t i) { return valueOf(ranks - 1, i); });
  const size_t reduced = member.rank == 0 ? count : 0;
  right = right && run("reduce", ncclReduce(in, out, count, ncclFloat, ncclSum, 0, comm, stream), reduced,
                       [&](size_t i) { return sumOf(member, i); });
  right = right && run("all-to-all", ncclAlltoAll(in, out, count, ncclFloat, comm, stream), all,
                       [&](size_t i) { return valueOf(static_cast<int>(i / count), own + i % count); });
  const int next = (member.rank + 1) % ranks, before = (member.rank + ranks - 1) % ranks;
  const auto pass = [&] {
    ncclGroupStart();
    member.expect(ncclSend(in, count, ncclFloat, next, comm, stream), "send");
    member.expect(ncclRecv(out, count, ncclFloat, before, comm, stream), "receive");
    return ncclGroupEnd();
  };
  return right && run("messages", pass(), count, [&](size_t i) { return valueOf(before, i); });
}

// Threads, each a host of its own.
class OverNet : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override { communicator::useBetweenHosts(nullptr); }
  void makeUpNet() { communicator::useBetweenHosts(net_); }
  MadeUpNet::Faults& faults() { return net_->faults; }

 private:
  const std::shared_ptr<MadeUpNet> net_ = std::make_shared<MadeUpNet>();
  const ScopedVariable link_{"STRETTO_LINK", "net"};
  const ScopedVariable interface_{"NCCL_SOCKET_IFNAME", "lo"};
};

class Proxied : public OverNet, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    OverNet::SetUp();
    if (GetParam()) makeUpNet();
  }
};

class ProxiedByMadeUpNet : public OverNet {
 protected:
  void SetUp() override {
    OverNet::SetUp();
    makeUpNet();
  }
};

TEST_P(Proxied, PairsReduce) {
  asThreads(2, connected([](Member& member) {
              const std::string plan = explained(member);
              member.check(plan.find("\"links\":\"net\"") != std::string::npos, plan.c_str());
              sumsRight(member, {1, 2, 1000, 70000, 300000});
            }));
}

TEST_P(Proxied, EveryCollectiveAmongThreads) {
  asThreads(3, connected([](Member& member) {
              if (sumsRight(member, {5, 20000})) othersRight(member, 3000);
            }));
}

TEST_P(Proxied, GraphsAreReplayed) {
  asThreads(2, connected([](Member& member) {
              constexpr size_t kCount = 5000;
              fill(member, kCount);
              const auto work = [&] {
                return member.expect(ncclAllReduce(inputOf(member), outputOf(member), kCount, ncclFloat,
                                                   ncclSum, member.comm, member.stream()),
                                     "all-reduce");
              };
              if (!work()) return;
              member.check(member.device->inGraph(work, 5, [&] { return member.board.meet(); }), "a graph");
              holds(member, kCount, "replays", [&](size_t i) { return sumOf(member, i); });
            }));
}

// Each has some channels, and connections of its own.
TEST_P(Proxied, SeveralThreadsMove) {
  const ScopedVariable threads("STRETTO_PROXY_THREADS", "3");
  asThreads(2, connected([](Member& member) {
              if (sumsRight(member, {1, 70000, 300000})) othersRight(member, 100000);
            }));
}

// Large messages, whose chunks are lent to the net, one after the other and many at a time.
TEST_P(Proxied, LargeMessagesPass) {
  asThreads(2, connected([](Member& member) {
              sumsRight(member, {kMost});
              othersRight(member, kMost / 4);
            }));
}

// What is there in part is not taken for a chunk.
TEST_F(ProxiedByMadeUpNet, WaitForWholeMessages) {
  faults().polls = 3;
  asThreads(3, connected([](Member& member) { sumsRight(member, {3, 40000}); }));
}

// The communicator fails within so many seconds, in these words.
void expectLoss(const Member& member, double seconds, const std::vector<std::string>& words) {
  ncclResult_t later = ncclSuccess;
  member.check(eventually(seconds,
                          [&] {
                            (void)ncclCommGetAsyncError(member.comm, &later);
                            return later != ncclSuccess;
                          }),
               "no error");
  member.expect(later, "the error", ncclRemoteError);
  member.expectError("the error", words);
}

// Operations until one fails: kernels end, though nothing comes any more, and the other rank is named.
void failNamed(Member& member, const std::string& part) {
  member.device = OnDevice::make(member.rank);
  ncclUniqueId id;
  if (!member.board.shareId(member.rank, &id)) return;
  if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return;
  ncclResult_t result = ncclSuccess;
  for (int turn = 0; turn < 20 && result == ncclSuccess; ++turn) {
    result = ncclAllReduce(inputOf(member), outputOf(member), 1000, ncclFloat, ncclSum, member.comm,
                           member.stream());
  }
  member.device->synchronize();
  expectLoss(member, 20, {"rank " + std::to_string(1 - member.rank), part});
  member.board.meet();
  member.expect(ncclCommAbort(member.comm), "abort");
}

TEST_F(ProxiedByMadeUpNet, AreToldThatALinkBroke) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  faults().breaks = 12;
  asThreads(2, [](Member& member) { failNamed(member, ""); });
}

// What is not as long as it must be is not given to a kernel.
TEST_F(ProxiedByMadeUpNet, RefuseMessagesOfAnotherLength) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  faults().cuts = 6;
  asThreads(2, [](Member& member) { failNamed(member, "host"); });
}

TEST_F(ProxiedByMadeUpNet, NoWordsButThoseThatThereAreForHosts) {
  const ScopedVariable hosts("STRETTO_HOSTS", "ours");
  asThreads(2, [](Member& member) {
    member.device = OnDevice::make(member.rank);
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclInvalidUsage);
    member.expectError("init", {"STRETTO_HOSTS=ours", "own, nccl or auto"});
  });
}

// No thread and no descriptor stays.
TEST_P(Proxied, NothingIsLeftOfThem) {
  asThreads(2, [](Member& member) {
    member.device = OnDevice::make(member.rank);
    const auto once = [&] {
      ncclUniqueId id;
      if (!member.board.shareId(member.rank, &id)) return false;
      if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return false;
      const bool right = sumsRight(member, {1000});
      member.expect(ncclCommDestroy(member.comm), "destroy");
      return member.board.meet() && right;
    };
    if (!once()) return;  // what is made once stays
    Held before;
    if (!member.check(comesToRest(before), "threads that come and go") || !member.board.meet()) return;
    for (int turn = 0; turn < 3; ++turn) {
      if (!once()) return;
    }
    const auto asBefore = [&] {
      return threadsNow() <= before.threads && descriptorsNow() <= before.descriptors;
    };
    if (!eventually(10, asBefore)) {
      member.complain("%zu threads and %zu descriptors, before %zu and %zu", threadsNow(), descriptorsNow(),
                      before.threads, before.descriptors);
    }
    member.board.meet();
  });
}

INSTANTIATE_TEST_SUITE_P(Nets, Proxied, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "MadeUp" : "Tcp"; });

// Processes that say that they are on hosts of their own, `perHost` on each.
class GpuHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
  static Body onHosts(int perHost, const Body& body) {
    return [perHost, body](Member& member) {
      setenv("NCCL_HOSTID", ("gpu-host-" + std::to_string(member.rank / perHost)).c_str(), 1);
      connected(body)(member);
    };
  }

 private:
  const ScopedVariable hosts_{"STRETTO_HOSTS", "own"};
  const ScopedVariable interface_{"NCCL_SOCKET_IFNAME", "lo"};
};

TEST_F(GpuHosts, OfOneRankEach) {
  asProcesses(2, onHosts(1, [](Member& member) {
                if (sumsRight(member, {1, 1000, 300000})) othersRight(member, 3000);
              }));
}

// Children of one host have no proxy.
TEST_F(GpuHosts, OfTwoRanksEachAndTheirChildren) {
  asProcesses(
      4, onHosts(2, [](Member& member) {
        if (!sumsRight(member, {1000}) || !othersRight(member, 3000)) return;
        const int host = member.rank / 2;
        ncclComm_t child = nullptr;
        if (!member.expect(ncclCommSplit(member.comm, member.rank % 2, host, &child, nullptr), "split"))
          return;
        fill(member, 1000);
        const auto sum = [&](const char* what, int first, int second) {
          return member.expect(ncclAllReduce(inputOf(member), outputOf(member), 1000, ncclFloat, ncclSum,
                                             child, member.stream()),
                               what) &&
                 holds(member, 1000, what, [&](size_t i) { return valueOf(first, i) + valueOf(second, i); });
        };
        sum("a rail", member.rank % 2, member.rank % 2 + 2);
        member.expect(ncclCommDestroy(child), "destroy");
      }));
}

// Also when it has not heard that the last of what it sent was read.
TEST_F(GpuHosts, OneThatLeavesInPeaceIsNoLoss) {
  asProcesses(2, onHosts(1, [](Member& member) {
                constexpr size_t kCount = 20000;
                fill(member, kCount);
                const auto end = [&] {
                  member.expect(ncclCommDestroy(member.comm), "destroy");
                  member.comm = nullptr;
                };
                if (member.rank == 0) {
                  const ncclResult_t result =
                      ncclSend(inputOf(member), kCount, ncclFloat, 1, member.comm, member.stream());
                  member.expect(result, "send");
                  end();
                  member.board.meet();
                  return;
                }
                member.board.meet();
                const ncclResult_t result =
                    ncclRecv(outputOf(member), kCount, ncclFloat, 0, member.comm, member.stream());
                if (!member.expect(result, "receive")) return;
                holds(member, kCount, "receive", [](size_t i) { return valueOf(0, i); });
                std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // until a loss would be told
                ncclResult_t later = ncclSuccess;
                (void)ncclCommGetAsyncError(member.comm, &later);
                member.expect(later, "after a peer has left");
                end();
              }));
}

// The others' kernels end within a second, and they are told who it was.
TEST_F(GpuHosts, OneThatDiesIsNamed) {
  const Board board(2);
  Processes processes(
      board,
      onHosts(1,
              [&](Member& member) {
                if (!sumsRight(member, {1000})) return;
                if (member.rank == 0) {
                  for (;;) pause();
                }
                const ncclResult_t result = ncclAllReduce(inputOf(member), outputOf(member), kMost, ncclFloat,
                                                          ncclSum, member.comm, member.stream());
                member.expect(result, "all-reduce");
                member.board.word(0) = 1;
                member.check(eventually(20, [&] { return member.board.word(1) != 0; }), "no kill");
                const Canary canary;
                const double killed = secondsNow();
                member.device->synchronize();
                const double took = secondsNow() - killed;
                if (took > canary.limit(1)) member.complain("its kernel ended after %.2f s", took);
                expectLoss(member, 5, {"rank 0", "host"});
                member.expect(ncclCommAbort(member.comm), "abort");
                member.comm = nullptr;
              }),
      100);
  EXPECT_TRUE(eventually(60, [&] { return board.word(0) != 0; }));
  processes.kill(0);
  board.word(1) = 1;
  processes.finish(0);
}

TEST_F(GpuHosts, OneThatAbortsIsNamed) {
  asProcesses(2, onHosts(1, [](Member& member) {
                if (!sumsRight(member, {1000}) || !member.board.meet()) return;
                if (member.rank == 0) {
                  member.expect(ncclCommAbort(member.comm), "abort");
                  member.comm = nullptr;
                  member.board.meet();
                  return;
                }
                const ncclResult_t result = ncclAllReduce(inputOf(member), outputOf(member), kMost, ncclFloat,
                                                          ncclSum, member.comm, member.stream());
                if (result == ncclSuccess) member.device->synchronize();
                expectLoss(member, 10, {"rank 0"});
                member.board.meet();
                member.expect(ncclCommAbort(member.comm), "abort");
                member.comm = nullptr;
              }));
}

}  // namespace
}  // namespace stretto
