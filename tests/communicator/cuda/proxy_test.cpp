// Ranks on GPUs of several hosts, whose links a proxy moves: threads of one process over a net that is made
// up, and over TCP; processes that say that they are on hosts of their own.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/scoped_variable.hpp"
#include "communicator/core/far.hpp"
#include "harness/device_mode.hpp"
#include "harness/made_up_net.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kMost = size_t{1} << 20;  // floats

float* inputOf(const Member& member) {
  return reinterpret_cast<float*>(member.device->at(0, nullptr));
}
float* resultOf(const Member& member) {
  return reinterpret_cast<float*>(member.device->at(1, nullptr));
}

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
                          reinterpret_cast<const char*>(resultOf(member)), count * sizeof(float));
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
    const ncclResult_t result = ncclAllReduce(inputOf(member), resultOf(member), count, ncclFloat, ncclSum,
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
  float* const out = resultOf(member);
  const ncclComm_t comm = member.comm;
  const cudaStream_t stream = member.stream();
  const size_t own = count * static_cast<size_t>(member.rank);
  bool right = run("all-gather", ncclAllGather(in, out, count, ncclFloat, comm, stream), all, [&](size_t i) {
    return valueOf(static_cast<int>(i / count), i % count);
  });
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

class Proxied : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
    if (GetParam()) communicator::useBetweenHosts(std::make_shared<MadeUpNet>());
  }
  void TearDown() override { communicator::useBetweenHosts(nullptr); }

 private:
  const ScopedVariable link_{"STRETTO_LINK", "net"};
  const ScopedVariable interface_{"NCCL_SOCKET_IFNAME", "lo"};
};

TEST_P(Proxied, PairsReduce) {
  asThreads(2, connected([](Member& member) { sumsRight(member, {1, 2, 1000, 70000, 300000}); }));
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
                return member.expect(ncclAllReduce(inputOf(member), resultOf(member), kCount, ncclFloat,
                                                   ncclSum, member.comm, member.stream()),
                                     "all-reduce");
              };
              if (!work()) return;
              member.check(member.device->inGraph(work, 5, [&] { return member.board.meet(); }), "a graph");
              holds(member, kCount, "replays", [&](size_t i) { return sumOf(member, i); });
            }));
}

INSTANTIATE_TEST_SUITE_P(Nets, Proxied, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "MadeUp" : "Tcp"; });

}  // namespace
}  // namespace stretto
