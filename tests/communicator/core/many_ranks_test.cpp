// Communicators of more ranks than one host serves, over hosts: every collective, transfers, and above all
// the words of failures, where rank 1 must not be taken for rank 65. ManyRanks has threads of one process,
// each a host of its own over a made up net; ManyRanksOnHosts has hosts of many ranks over TCP; ManyRanksCost
// holds against limits what it takes to make a communicator of as many ranks as there can be.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/scoped_variable.hpp"
#include "communicator/core/far.hpp"
#include "harness/explained.hpp"
#include "harness/made_up_net.hpp"
#include "harness/ranks.hpp"
#include "harness/share.hpp"
#include "primitives/disagreement.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr int kWide = 66;  // more than the bits of a word
constexpr double kSeconds = 300;

// What is said within half a second elsewhere takes longer than who waits for it waits.
constexpr const char* kTooSlow =
    "STRETTO_TEST_SHARE is set, as under sanitizers, where 66 threads take too long: the plain build runs "
    "this";

class ManyRanks : public ::testing::Test {
 protected:
  void SetUp() override { communicator::useBetweenHosts(std::make_shared<MadeUpNet>()); }
  void TearDown() override { communicator::useBetweenHosts(nullptr); }

 private:
  const ScopedVariable link_{"STRETTO_LINK", "net"};
};

// For bodies that end by an abort, which connected() does not.
bool connects(Member& member) {
  ncclUniqueId id;
  return member.board.shareId(member.rank, &id) &&
         member.expect(ncclCommInitRank(&member.comm, member.ranks(), id, member.rank), "init");
}

// What rank `from` has for rank `to` at `i`.
float valueOf(int from, int to, size_t i) {
  return static_cast<float>(from + 7 * to) + static_cast<float>(i % 13);
}

// A collective of `count` elements for each block, and what element `i` of a block of its result is to be.
struct Case {
  const char* name;
  std::function<ncclResult_t(Member&, const std::vector<float>&, std::vector<float>&, size_t)> call;
  std::function<float(int rank, int ranks, size_t block, size_t i)> wanted;
  bool ofAll = false;  // a block for each rank comes out
  int at = -1;         // only this rank has a result
};

std::vector<float> inputOf(int rank, int ranks, size_t count) {
  std::vector<float> all(static_cast<size_t>(ranks) * count);
  for (size_t i = 0; i < all.size(); ++i) all[i] = valueOf(rank, static_cast<int>(i / count), i % count);
  return all;
}

float sumOf(int ranks, int block, size_t i) {
  const auto all = static_cast<float>(ranks);
  return all * (all - 1) / 2 + all * valueOf(0, block, i);
}

std::vector<Case> casesFor(int root) {
  using In = const std::vector<float>&;
  using Out = std::vector<float>&;
  const auto onBlock = [](int, int ranks, size_t block, size_t i) {
    return sumOf(ranks, static_cast<int>(block), i);
  };
  return {
      {"all_reduce",
       [](Member& m, In in, Out out, size_t count) {
         return ncclAllReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, m.comm, nullptr);
       },
       onBlock},
      {"reduce",
       [root](Member& m, In in, Out out, size_t count) {
         return ncclReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, root, m.comm, nullptr);
       },
       onBlock, false, root},
      {"reduce_scatter",
       [](Member& m, In in, Out out, size_t count) {
         return ncclReduceScatter(in.data(), out.data(), count, ncclFloat32, ncclSum, m.comm, nullptr);
       },
       [](int rank, int ranks, size_t, size_t i) { return sumOf(ranks, rank, i); }},
      {"broadcast",
       [root](Member& m, In in, Out out, size_t count) {
         return ncclBroadcast(in.data(), out.data(), count, ncclFloat32, root, m.comm, nullptr);
       },
       [root](int, int, size_t, size_t i) { return valueOf(root, 0, i); }},
      {"all_gather",
       [](Member& m, In in, Out out, size_t count) {
         return ncclAllGather(in.data(), out.data(), count, ncclFloat32, m.comm, nullptr);
       },
       [](int, int, size_t block, size_t i) { return valueOf(static_cast<int>(block), 0, i); }, true},
      {"gather",
       [root](Member& m, In in, Out out, size_t count) {
         return ncclGather(in.data(), out.data(), count, ncclFloat32, root, m.comm, nullptr);
       },
       [](int, int, size_t block, size_t i) { return valueOf(static_cast<int>(block), 0, i); }, true, root},
      {"scatter",
       [root](Member& m, In in, Out out, size_t count) {
         return ncclScatter(in.data(), out.data(), count, ncclFloat32, root, m.comm, nullptr);
       },
       [root](int rank, int, size_t, size_t i) { return valueOf(root, rank, i); }},
      {"all_to_all",
       [](Member& m, In in, Out out, size_t count) {
         return ncclAlltoAll(in.data(), out.data(), count, ncclFloat32, m.comm, nullptr);
       },
       [](int rank, int, size_t block, size_t i) { return valueOf(static_cast<int>(block), rank, i); }, true},
  };
}

void runCase(Member& member, const Case& one, size_t count) {
  const int ranks = member.ranks();
  const std::vector<float> input = inputOf(member.rank, ranks, count);
  std::vector<float> output(one.ofAll ? input.size() : count, -1);
  if (!member.expect(one.call(member, input, output, count), one.name)) return;
  if (one.at >= 0 && one.at != member.rank) return;
  for (size_t i = 0; i < output.size(); ++i) {
    const float wanted = one.wanted(member.rank, ranks, i / count, i % count);
    if (output[i] != wanted)
      return member.complain("%s of %zu: element %zu is %g, not %g", one.name, count, i,
                             static_cast<double>(output[i]), static_cast<double>(wanted));
  }
}

// Each rank sends to the one 64 further, whose number has the same place in a word, and to the next.
void sendAround(Member& member) {
  const int ranks = member.ranks();
  std::vector<int> sent(2, member.rank), came(2, -1);
  const int steps[] = {64, 1};
  member.expect(ncclGroupStart(), "group");
  for (int i = 0; i < 2; ++i) {
    const auto at = static_cast<size_t>(i);
    const int to = (member.rank + steps[i]) % ranks, from = (member.rank + ranks - steps[i]) % ranks;
    member.expect(ncclSend(&sent[at], 1, ncclInt32, to, member.comm, nullptr), "send");
    member.expect(ncclRecv(&came[at], 1, ncclInt32, from, member.comm, nullptr), "receive");
  }
  member.expect(ncclGroupEnd(), "group");
  for (int i = 0; i < 2; ++i) {
    const int from = (member.rank + ranks - steps[i]) % ranks;
    member.check(came[static_cast<size_t>(i)] == from, "another rank's message");
  }
}

std::vector<int> rootsOf(const Member& member) {
  return {0, 1, 64, member.ranks() - 1};
}

void everything(Member& member, const std::vector<int>& roots, const std::vector<size_t>& counts) {
  for (const int root : roots) {
    for (const Case& one : casesFor(root)) {
      const bool isRooted =
          one.at >= 0 || std::string(one.name) == "broadcast" || std::string(one.name) == "scatter";
      if (root != 0 && !isRooted) continue;
      for (const size_t count : counts) runCase(member, one, count);
    }
  }
  sendAround(member);
}

TEST_F(ManyRanks, RunEveryCollective) {
  asThreads(Board(kWide), connected([](Member& member) {
              if (isShortened()) {
                everything(member, {0, 64}, {300});
              } else {
                everything(member, rootsOf(member), {1, 300});
              }
              const std::string text = explained(member);
              member.check(text.find("\"ranks\":66") != std::string::npos, text.c_str());
              member.check(text.find("at most 64 ranks at a time") != std::string::npos, text.c_str());
            }),
            kSeconds);
}

// A rank of a high number calls another operation than the rest: both are named, and none that has the same
// place in a word.
TEST_F(ManyRanks, WhoDisagreesIsNamed) {
  if (isShortened()) GTEST_SKIP() << kTooSlow;
  const ScopedVariable quiet("NCCL_DEBUG", "");
  asThreads(
      Board(kWide),
      [](Member& member) {
        if (!connects(member)) return;
        float value = 1;
        const bool differs = member.rank == 65;
        const ncclResult_t result =
            differs ? ncclBroadcast(&value, &value, 1, ncclFloat32, 3, member.comm, nullptr)
                    : ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr);
        member.check(result != ncclSuccess, "the calls belong together");
        const bool isOwn = result == ncclInvalidUsage;
        if (isOwn) member.expectError("the call", {"ranks disagree", "rank 65", "broadcast", "all_reduce"});
        if (isOwn) member.board.word(0) += 1;
        member.board.meet();
        member.check(member.board.word(0) != 0, "nobody says that ranks disagree");
        member.expect(ncclCommAbort(member.comm), "abort");
      },
      kSeconds);
}

// All others are told of the one that aborts, by its number.
TEST_F(ManyRanks, WhoAbortsIsNamed) {
  if (isShortened()) GTEST_SKIP() << kTooSlow;
  const ScopedVariable quiet("NCCL_DEBUG", "");
  asThreads(
      Board(kWide),
      [](Member& member) {
        if (!connects(member)) return;
        float value = 1;
        member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "sum");
        if (member.rank != 65) {
          const ncclResult_t result =
              ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr);
          member.expect(result, "a sum without rank 65", ncclRemoteError);
          member.expectError("a sum without rank 65", {"rank 65"});
          member.board.meet();  // who has been told ends no links that others wait at
        }
        member.expect(ncclCommAbort(member.comm), "abort");
        if (member.rank == 65) member.board.meet();
      },
      kSeconds);
}

// Who waits long for several says so of those that it waits for.
TEST_F(ManyRanks, WhoIsMissingIsNamed) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  const ScopedVariable timeout("STRETTO_TIMEOUT", "2");
  asThreads(
      Board(kWide),
      [](Member& member) {
        if (!connects(member)) return;
        if (member.rank == 0) {
          std::vector<float> values(2);
          member.expect(ncclGroupStart(), "group");
          member.expect(ncclRecv(&values[0], 1, ncclFloat32, 1, member.comm, nullptr), "receive");
          member.expect(ncclRecv(&values[1], 1, ncclFloat32, 65, member.comm, nullptr), "receive");
          member.expect(ncclGroupEnd(), "two receives, of which one comes", ncclRemoteError);
          member.expectError("two receives, of which one comes", {"for rank 65"});
          member.check(values[0] == 5, "what rank 1 sent has not come");
        }
        const float five = 5;
        if (member.rank == 1) member.expect(ncclSend(&five, 1, ncclFloat32, 0, member.comm, nullptr), "send");
        member.board.meet();
        member.expect(ncclCommAbort(member.comm), "abort");
      },
      kSeconds);
}

// A communicator of many ranks has children of few.
TEST_F(ManyRanks, SplitIntoFew) {
  asThreads(Board(kWide), connected([](Member& member) {
              ncclComm_t half = nullptr;
              const int color = member.rank % 2;
              if (!member.expect(ncclCommSplit(member.comm, color, member.rank, &half, nullptr), "split"))
                return;
              int value = member.rank, sum = -1;
              member.expect(ncclAllReduce(&value, &sum, 1, ncclInt32, ncclSum, half, nullptr), "sum");
              const int each = kWide / 2;
              member.check(sum == each * (each - 1) + color * each, "a wrong sum");
              member.expect(ncclCommDestroy(half), "destroy");
            }),
            kSeconds);
}

TEST(RanksInWords, OfManyAreTakenTogether) {
  RankSet ranks = RankSet::below(90);
  EXPECT_EQ(ranksInWords(RankSet::of(70)), "rank 70");
  EXPECT_EQ(ranksInWords(ranks), "ranks 0 to 89");
  for (int rank = 100; rank < 130; rank += 2) ranks.add(rank);
  EXPECT_EQ(ranksInWords(ranks), "ranks 0 to 89, 100, 102, 104, 106, 108, 110, 112 and 8 more");
  RankSet few = RankSet::of(0);
  few.add(1);
  few.add(5);
  EXPECT_EQ(ranksInWords(few), "ranks 0, 1 and 5");
}

// ---- Over TCP, as processes of many ranks
// ------------------------------------------------------------------

class ManyRanksOnHosts : public ::testing::Test {
 private:
  const ScopedVariable interface_{"NCCL_SOCKET_IFNAME", "lo"};
};

TEST_F(ManyRanksOnHosts, RunEveryCollective) {
  const Board board(kWide);
  Processes(board, connected([](Member& member) {
              everything(member, rootsOf(member), {1, 5000});
              const std::string text = explained(member);
              member.check(text.find("\"hosts\":2") != std::string::npos, text.c_str());
              member.check(text.find("stages") != std::string::npos, text.c_str());
            }),
            kSeconds, kWide / 2)
      .finish();
}

// Hosts need not have equally many.
TEST_F(ManyRanksOnHosts, OfDifferentNumbers) {
  const Board board(70);
  Processes(board, connected([](Member& member) {
              everything(member, rootsOf(member), {1, 300});
            }),
            kSeconds, 30)
      .finish();
}

TEST_F(ManyRanksOnHosts, MoreThanOneHostServesAreRefused) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  const Board board(67);
  Processes(
      board,
      [](Member& member) {
        ncclUniqueId id;
        if (!member.board.shareId(member.rank, &id)) return;
        // Or ncclRemoteError with these words, where another rank has left with them first.
        const ncclResult_t result = ncclCommInitRank(&member.comm, member.ranks(), id, member.rank);
        member.check(result == ncclInvalidUsage || result == ncclRemoteError, "it was not refused");
        member.comm = nullptr;
        member.expectError("init", {"65 of the 67 ranks are on host", "64 ranks"});
      },
      kSeconds, 65)
      .finish();
}

// All of one host at once, of the highest ranks.
TEST_F(ManyRanksOnHosts, AHostThatDiesIsNamed) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  const Board board(kWide);
  Processes hosts(
      board,
      [](Member& member) {
        if (!connects(member)) return;
        float value = 1;
        member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "sum");
        member.board.word(0) += 1;
        if (member.rank >= kWide / 2) {
          eventually(kSeconds, [] { return false; });
        }
        const ncclResult_t result =
            ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr);
        member.expect(result, "a sum without the other host", ncclRemoteError);
        const std::string words = ncclGetLastError(member.comm);
        bool names = false;
        for (int rank = kWide / 2; rank < kWide; ++rank)
          names = names || words.find("rank " + std::to_string(rank)) != std::string::npos;
        member.check(names, words.c_str());
        member.board.word(1) += 1;  // who has been told ends no links that others wait at
        eventually(60, [&] { return member.board.word(1) == kWide / 2; });
        member.expect(ncclCommAbort(member.comm), "abort");
      },
      kSeconds, kWide / 2);
  EXPECT_TRUE(eventually(kSeconds, [&] { return board.word(0) == kWide; }));
  hosts.kill(kWide - 1);
  hosts.finish(kWide - 1);
}

double residentMegabytes() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return static_cast<double>(resident * kPageBytes) * 1e-6;
}

// Ranks that are through sleep, and leave the cores to those that are not.
double secondsUntilAllCame(const Board& board, int word, double began) {
  ++board.word(word);
  EXPECT_TRUE(eventually(kSeconds, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return board.word(word) == static_cast<uint64_t>(board.ranks());
  }));
  return secondsNow() - began;
}

TEST(ManyRanksCost, OfTheMostRanks) {
  constexpr int kHosts = 16, kEach = kMostRanks / kHosts;
  constexpr double kMostSeconds = 10, kMostMegabytes = 1;
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "lo");
  const Board board(kMostRanks);
  Processes(
      board,
      [](Member& member) {
        ncclUniqueId id;
        if (!member.board.shareId(member.rank, &id)) return;
        const double before = residentMegabytes(), began = secondsNow();
        if (!member.expect(ncclCommInitRank(&member.comm, kMostRanks, id, member.rank), "init")) return;
        const double made = secondsUntilAllCame(member.board, 0, began);
        const double each = (residentMegabytes() - before) / kEach;
        float value = 1;
        const double called = secondsNow();
        member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "sum");
        const double summed = secondsUntilAllCame(member.board, 1, called);
        member.check(value == kMostRanks, "a wrong sum");
        if (member.rank == 0) {
          printf("%d ranks on %d hosts: init %.2f s, first sum %.2f s, %.2f MB a rank\n", kMostRanks, kHosts,
                 made, summed, each);
          fflush(stdout);
          member.check(made < kMostSeconds, "the initialisation took too long");
          member.check(each < kMostMegabytes, "a rank takes too much memory");
        }
        member.expect(ncclCommDestroy(member.comm), "destroy");
      },
      kSeconds, kEach)
      .finish();
}

}  // namespace
}  // namespace stretto
