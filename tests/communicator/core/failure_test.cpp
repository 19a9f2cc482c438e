// What a rank gets when another dies, never comes, leaves or asks for something else: an error that names it,
// in bounded time, whatever this rank waits in.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "base/os.hpp"
#include "base/scoped_variable.hpp"
#include "harness/norm_sum.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Descriptor;
using algorithms::Protocol;

uint64_t nanosecondsNow() {
  return static_cast<uint64_t>(secondsNow() * 1e9);
}

// One call of a collective with `count` floats per block; transfers go round in a ring.
ncclResult_t callOnce(Collective collective, const Member& member, size_t count, float* buffer,
                      int root = 0) {
  float* const to = buffer + count * static_cast<size_t>(member.ranks());
  ncclComm_t comm = member.comm;
  switch (collective) {
    case Collective::kAllReduce:
      return ncclAllReduce(buffer, to, count, ncclFloat32, ncclSum, comm, nullptr);
    case Collective::kReduceScatter:
      return ncclReduceScatter(buffer, to, count, ncclFloat32, ncclSum, comm, nullptr);
    case Collective::kAllGather:
      return ncclAllGather(buffer, to, count, ncclFloat32, comm, nullptr);
    case Collective::kAllToAll:
      return ncclAlltoAll(buffer, to, count, ncclFloat32, comm, nullptr);
    case Collective::kBroadcast:
      return ncclBroadcast(buffer, to, count, ncclFloat32, root, comm, nullptr);
    case Collective::kReduce:
      return ncclReduce(buffer, to, count, ncclFloat32, ncclSum, root, comm, nullptr);
    case Collective::kGather:
      return ncclGather(buffer, to, count, ncclFloat32, root, comm, nullptr);
    case Collective::kScatter:
      return ncclScatter(buffer, to, count, ncclFloat32, root, comm, nullptr);
    case Collective::kAllReduceAddRmsNorm:
      return sumByNorm(buffer, to, count, ncclFloat32, comm, nullptr);
    default:
      break;
  }
  const int next = (member.rank + 1) % member.ranks();
  const int previous = (member.rank + member.ranks() - 1) % member.ranks();
  ncclGroupStart();
  ncclSend(buffer, count, ncclFloat32, next, comm, nullptr);
  ncclRecv(to, count, ncclFloat32, previous, comm, nullptr);
  return ncclGroupEnd();
}

std::vector<float> bufferFor(const Member& member, size_t count) {
  return std::vector<float>(2 * count * static_cast<size_t>(member.ranks()), 1.0f);
}

// Every way in which ranks wait for each other: all rows but the local ones and one of the two transfers.
std::vector<Descriptor> waitingRows() {
  std::vector<Descriptor> rows;
  for (const Descriptor& row : algorithms::descriptors()) {
    if (row.algorithm == algorithms::Algorithm::kLocal || row.collective == Collective::kReceive) continue;
    if (row.algorithm == algorithms::Algorithm::kStages) continue;  // far_test.cpp: hosts with several ranks
    if (testsBetweenHosts() && !algorithms::usesLinks(row.algorithm)) continue;
    rows.push_back(row);
  }
  return rows;
}

std::string nameOfRow(const Descriptor& row) {
  return std::string(nameOf(row.collective)) + "_" + nameOf(row.algorithm) + "_" + nameOf(row.protocol);
}

size_t countFor(const Descriptor& row) {
  return row.protocol == Protocol::kLL ? 500 : 60000;
}

bool forceRow(const Member& member, const Descriptor& row) {
  if (row.collective == Collective::kSend) return true;
  return member.expect(strettoCommForce(member.comm, nameOf(row.collective), nameOf(row.algorithm),
                                        nameOf(row.protocol), 0, 0),
                       "force");
}

class EveryWait : public ::testing::TestWithParam<Descriptor> {};

// ---- Death ------------------------------------------------------------------------------------------------

// Words of the board: the victim's process, when it was killed, operations it has finished, and microseconds
// until each rank knew.
enum KillWord { kVictimPid, kKilledAt, kDone, kNoticedAfter };

void untilKilled(Member& member, const Descriptor& row, int victim) {
  if (!forceRow(member, row)) return;
  if (member.rank == victim) member.board.word(kVictimPid) = static_cast<uint64_t>(os::processId());
  std::vector<float> buffer = bufferFor(member, countFor(row));
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess) {
    result = callOnce(row.collective, member, countFor(row), buffer.data());
    if (member.rank == victim) ++member.board.word(kDone);
  }
  const uint64_t now = nanosecondsNow();
  const uint64_t killedAt = member.board.word(kKilledAt);
  member.check(killedAt != 0, "failed before the kill");
  member.board.word(kNoticedAfter + member.rank) = (now - killedAt) / 1000;
  member.expect(result, "the operation", ncclRemoteError);
  char host[256] = {};
  os::hostName(host, sizeof host);
  const bool transfer = row.collective == Collective::kSend;
  member.expectError("ncclGetLastError", {"rank " + std::to_string(victim), host,
                                          std::to_string(member.board.word(kVictimPid).load()),
                                          transfer ? "" : nameOf(row.collective)});
  ncclResult_t state = ncclSuccess;
  member.expect(ncclCommGetAsyncError(member.comm, &state), "asking");
  member.expect(state, "the communicator's state", ncclRemoteError);
  member.expect(ncclCommAbort(member.comm), "abort");
  member.comm = nullptr;
}

void killOne(const Descriptor& row, int ranks, int victim) {
  const Board board(ranks);
  Processes processes(board, connected([&](Member& member) { untilKilled(member, row, victim); }), 30);
  ASSERT_TRUE(eventually(20, [&] { return board.word(kDone) > 3; })) << "the ranks do not get on";
  const Canary canary;
  std::this_thread::sleep_for(std::chrono::milliseconds(3 + victim));
  board.word(kKilledAt) = nanosecondsNow();
  processes.kill(victim);
  processes.finish(victim);
  for (int rank = 0; rank < ranks; ++rank) {
    const double noticed = static_cast<double>(board.word(kNoticedAfter + rank)) * 1e-6;
    EXPECT_LT(noticed, canary.limit(kNoticed)) << "rank " << rank;
  }
}

TEST_P(EveryWait, ADeadRankIsNoticedByAllOthers) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  // By the row alone: a rank's process may come here without those before it.
  const std::vector<Descriptor> rows = waitingRows();
  const auto isThis = [](const Descriptor& row) { return nameOfRow(row) == nameOfRow(GetParam()); };
  const auto turn = static_cast<int>(std::find_if(rows.begin(), rows.end(), isThis) - rows.begin());
  killOne(GetParam(), 3 + turn % 2, turn % 3);
}

// ---- Abort ------------------------------------------------------------------------------------------------

// Rank 0's call and rank 1's are stuck because rank 2 does not come; another thread aborts rank 0.
void abortWhileStuck(Member& member, const Descriptor& row, const Canary& canary) {
  // All have their communicator, late as they may be, before one aborts.
  if (!forceRow(member, row) || !member.board.meet()) return;
  const size_t count = 20 * countFor(row);
  std::vector<float> buffer = bufferFor(member, row.protocol == Protocol::kLL ? 500 : count);
  const auto call = [&] {
    return callOnce(row.collective, member, row.protocol == Protocol::kLL ? 500 : count, buffer.data(), 2);
  };
  if (member.rank == 2) {
    member.check(eventually(20, [&] { return member.board.word(kDone) != 0; }), "rank 0 never came back");
    const ncclResult_t late = call();
    if (late == ncclSuccess) member.complain("an operation with an aborted rank succeeded");
    return;
  }
  std::atomic<double> abortTook{-1};
  std::thread aborter;
  if (member.rank == 0) {
    aborter = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      member.board.word(kKilledAt) = nanosecondsNow();
      const double start = secondsNow();
      member.expect(ncclCommAbort(member.comm), "abort");
      abortTook = secondsNow() - start;
    });
  }
  ncclResult_t result = ncclSuccess;
  for (int calls = 0; calls < 10000 && result == ncclSuccess; ++calls) result = call();
  const double back = static_cast<double>(nanosecondsNow() - member.board.word(kKilledAt)) * 1e-9;
  if (back > canary.limit(kNoticed)) member.complain("back %.3f s after the abort", back);
  if (member.rank == 0) {
    aborter.join();
    if (abortTook > canary.limit(kNoticed)) member.complain("ncclCommAbort took %.3f s", abortTook.load());
    // Stuck inside: aborted. Between two calls: the handle was dead already.
    if (result != ncclSystemError && result != ncclInvalidArgument) {
      member.expect(result, "the stuck call", ncclSystemError);
    }
    member.comm = nullptr;
    member.board.word(kDone) = 1;
  } else {
    member.expect(result, "the peer's call", ncclRemoteError);
    member.expectError("the peer's error", {"rank 0", "ncclCommAbort"});
  }
}

TEST_P(EveryWait, AbortEndsItAndThePeersKnow) {
  const Canary canary;
  asThreads(3, connected([&](Member& member) { abortWhileStuck(member, GetParam(), canary); }), 60);
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryWait, ::testing::ValuesIn(waitingRows()),
                         [](const auto& suite) { return nameOfRow(suite.param); });

TEST(Abort, EndsAnInitialisationThatLacksARank) {
  const Canary canary;
  const Watchdog watchdog("abort of an initialisation", 20);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double start = secondsNow();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_LT(secondsNow() - start, canary.limit(kNoticed));
}

TEST(Abort, EndsWhatRunsOnAHostStream) {
  const Canary canary;
  asThreads(2, connected([&](Member& member) {
              if (member.rank == 1) {
                member.board.meet();
                return;
              }
              cudaStream_t stream = nullptr;
              member.expect(strettoStreamCreate(&stream), "stream");
              float value = 1;
              member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, stream),
                            "enqueue");
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
              member.expect(strettoStreamQuery(stream), "query", ncclInProgress);
              const double start = secondsNow();
              member.expect(ncclCommAbort(member.comm), "abort");
              member.comm = nullptr;
              member.expect(strettoStreamSynchronize(stream), "synchronise");
              member.expect(strettoStreamDestroy(stream), "destroy the stream");
              const double took = secondsNow() - start;
              if (took > canary.limit(kNoticed)) member.complain("took %.3f s", took);
              member.board.meet();
            }));
}

// No call is there to say that an operation could not begin, so the communicator does.
TEST(Refusal, OfAnOperationOnAHostStreamIsTheCommunicatorsError) {
  if (testsBetweenHosts()) GTEST_SKIP() << "what is forced here is none of the algorithms between hosts";
  constexpr size_t kCount = 100000;  // far above what lines of 8 bytes carry
  asThreads(2, connected([](Member& member) {
              cudaStream_t stream = nullptr;
              member.expect(strettoStreamCreate(&stream), "stream");
              member.expect(strettoCommForce(member.comm, "all_reduce", "one_shot", "ll", 0, 0), "force");
              std::vector<float> from(kCount, 1.0f), to(kCount);
              member.expect(
                  ncclAllReduce(from.data(), to.data(), kCount, ncclFloat32, ncclSum, member.comm, stream),
                  "enqueue");
              (void)strettoStreamSynchronize(stream);
              ncclResult_t state = ncclSuccess;
              member.expect(ncclCommGetAsyncError(member.comm, &state), "asking");
              member.expect(state, "the communicator's state", ncclInvalidUsage);
              member.check(std::string(ncclGetLastError(member.comm)).find("cannot run as forced") !=
                               std::string::npos,
                           "the words are others");
              member.board.meet();  // who is told of the other's abort first is told another thing
              member.expect(strettoStreamDestroy(stream), "destroy the stream");
              member.expect(ncclCommAbort(std::exchange(member.comm, nullptr)), "abort");
            }));
}

// A thread that gives a non-blocking communicator's worker work while another one aborts, and so ends the
// worker.
TEST(Abort, RacesWithCallsForTheWorker) {
  const Watchdog watchdog("aborts while another thread calls", 120);
  for (int round = 0; round < 200; ++round) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
    ASSERT_EQ(state, ncclSuccess);
    std::atomic<int> calls{0};
    float from = 1, to = 0;
    const bool grouped = round % 2 == 1;
    std::thread caller([&] {
      ncclResult_t result = ncclInProgress;
      while (result == ncclInProgress) {
        if (grouped) ncclGroupStart();
        result = ncclAllReduce(&from, &to, 1, ncclFloat32, ncclSum, comm, nullptr);
        if (grouped) result = ncclGroupEnd();
        ++calls;
      }
    });
    while (calls.load() < 1 + round % 7) {
    }
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    caller.join();
  }
}

// Aborting and destroying while the worker of a non-blocking communicator ends its work.
TEST(Abort, RacesWithTheEndOfNonBlockingWork) {
  asThreads(2, [](Member& member) {
    for (int round = 0; round < 60; ++round) {
      ncclUniqueId id;
      if (!member.check(member.board.shareId(member.rank, &id), "no id")) return;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      member.expect(ncclCommInitRankConfig(&comm, 2, id, member.rank, &config), "init", ncclInProgress);
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
      member.expect(state, "made");
      if (!member.check(member.board.meet(), "left alone")) return;
      float value = 1;
      member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr), "enqueue",
                    ncclInProgress);
      if (!member.check(member.board.meet(), "left alone")) return;
      if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      if (round % 2 == 0) {
        state = ncclInProgress;
        while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
        member.expect(state, "summed");
        if (!member.check(member.board.meet(), "left alone")) return;
      }
      member.expect(ncclCommAbort(comm), "abort");
      if (!member.check(member.board.meet(), "left alone")) return;
    }
  });
}

// ---- Absence ----------------------------------------------------------------------------------------------

TEST(Absence, PastTheDeadlineTheMissingRankIsNamed) {
  setenv("STRETTO_TIMEOUT", "0.5", 1);
  const Canary canary;
  asThreads(3, connected([&](Member& member) {
              if (member.rank == 1) {
                member.board.meet();
                return;
              }
              std::vector<float> buffer = bufferFor(member, 100);
              const double start = secondsNow();
              const ncclResult_t result = callOnce(Collective::kAllReduce, member, 100, buffer.data());
              const double took = secondsNow() - start;
              member.expect(result, "waiting for rank 1", ncclRemoteError);
              member.expectError("the error", {"rank 1", "all_reduce"});
              // One that waits for its deadline twice takes a second at least.
              if (took > canary.limit(0.9)) member.complain("took %.3f s", took);
              member.board.meet();
            }));
  unsetenv("STRETTO_TIMEOUT");
}

// A rank that is in a transfer has not entered the collective that another one waits in. Rank 2 calls
// nothing, so that nobody knows yet that the two would wait for ever.
TEST(Absence, PastTheDeadlineARankInATransferIsSaidToBeMissing) {
  const ScopedVariable limit("STRETTO_TIMEOUT", "0.6");
  asThreads(3, connected([](Member& member) {
              std::vector<float> buffer = bufferFor(member, 100);
              if (member.rank == 0) {
                const ncclResult_t result = callOnce(Collective::kAllReduce, member, 100, buffer.data());
                member.expect(result, "waiting for the others", ncclRemoteError);
                member.expectError("the error", {"all_reduce", "not entered by ranks 1"});
              }
              if (member.rank == 1) {  // later, so that rank 0's deadline comes first
                std::this_thread::sleep_for(std::chrono::milliseconds(250));
                member.expect(ncclRecv(buffer.data(), 5, ncclFloat32, 2, member.comm, nullptr), "receive",
                              ncclRemoteError);
              }
              member.board.meet();
            }));
}

TEST(Absence, PastTheDeadlineOfAReceiveTheSenderIsNamed) {
  setenv("STRETTO_TIMEOUT", "0.3", 1);
  asThreads(2, connected([](Member& member) {
              float value = 0;
              if (member.rank == 0) {
                member.expect(ncclRecv(&value, 1, ncclFloat32, 1, member.comm, nullptr), "receive",
                              ncclRemoteError);
                member.expectError("the error", {"rank 1"});
              }
              member.board.meet();
            }));
  unsetenv("STRETTO_TIMEOUT");
}

// A rank that has destroyed its communicator will never come: the others must not wait for the deadline.
TEST(Absence, ARankThatHasLeftIsNotWaitedFor) {
  for (const bool transfer : {false, true}) {
    asThreads(3, connected([transfer](Member& member) {
                std::vector<float> buffer = bufferFor(member, 100);
                member.expect(callOnce(Collective::kAllReduce, member, 100, buffer.data()), "together");
                if (member.rank == 1) {
                  member.expect(ncclCommDestroy(member.comm), "destroy");
                  member.comm = nullptr;
                  member.board.meet();
                  member.board.meet();
                  return;
                }
                member.board.meet();
                const double start = secondsNow();
                const ncclResult_t result =
                    transfer ? ncclRecv(buffer.data(), 1, ncclFloat32, 1, member.comm, nullptr)
                             : callOnce(Collective::kAllReduce, member, 100, buffer.data());
                member.expect(result, "after rank 1 has left", ncclRemoteError);
                if (!transfer) member.expectError("the error", {"rank 1", "all_reduce"});
                if (secondsNow() - start > 3) member.complain("took %.3f s", secondsNow() - start);
                member.board.meet();  // who leaves first after the failure would be a loss of its own
              }),
              20);
  }
}

// Nor behind a transfer of the same group with a rank that is late.
TEST(Absence, ARankThatHasLeftIsMissedInAGroupOfTransfers) {
  const ScopedVariable limit("STRETTO_TIMEOUT", "6");
  asThreads(3, connected([](Member& member) {
              std::vector<float> buffer = bufferFor(member, 1);
              member.expect(callOnce(Collective::kAllReduce, member, 1, buffer.data()), "together");
              if (member.rank == 2) {
                member.expect(ncclCommDestroy(member.comm), "destroy");
                member.comm = nullptr;
              }
              member.board.meet();
              if (member.rank == 0) {
                const Canary canary;
                const double start = secondsNow();
                member.expect(ncclGroupStart(), "start");
                for (const int from : {1, 2}) {
                  member.expect(ncclRecv(buffer.data(), 1, ncclFloat32, from, member.comm, nullptr),
                                "receive");
                }
                member.expect(ncclGroupEnd(), "after rank 2 has left", ncclRemoteError);
                member.expectError("the error", {"rank 2", "finalised"});
                if (secondsNow() - start > canary.limit(1)) member.complain("told late");
              }
              member.board.meet();
            }),
            30);
}

// What a rank has sent before it left still arrives.
TEST(Absence, WhatWasSentBeforeLeavingArrives) {
  if (testsBetweenHosts()) GTEST_SKIP() << "a first send between hosts waits for its receiver to call";
  asThreads(2, connected([](Member& member) {
              float value = 7;
              if (member.rank == 1) {
                member.expect(ncclSend(&value, 1, ncclFloat32, 0, member.comm, nullptr), "send");
                member.expect(ncclCommDestroy(member.comm), "destroy");
                member.comm = nullptr;
                member.board.meet();
                return;
              }
              member.board.meet();
              value = 0;
              member.expect(ncclRecv(&value, 1, ncclFloat32, 1, member.comm, nullptr), "receive");
              member.check(value == 7, "another value than was sent");
            }));
}

// ---- After the end ----------------------------------------------------------------------------------------

TEST(AfterTheEnd, EveryCallIsRefusedWithASentence) {
  asThreads(2, connected([](Member& member) {
              float value = 1;
              const auto sum = [&](ncclComm_t comm) {
                return ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
              };
              member.expect(sum(member.comm), "together");
              member.board.meet();
              member.expect(ncclCommFinalize(member.comm), "finalise");
              member.expect(sum(member.comm), "after finalising", ncclInvalidUsage);
              member.expectError("the error", {"finalised"});
              ncclComm_t comm = member.comm;
              member.expect(ncclCommDestroy(comm), "destroy");
              member.comm = nullptr;
              member.expect(sum(comm), "after destroying", ncclInvalidArgument);
              member.expectError("the error", {"ncclAllReduce", "destroyed"});
              member.expect(ncclCommDestroy(comm), "destroying twice", ncclInvalidArgument);
              member.expect(ncclCommAbort(comm), "aborting what is destroyed", ncclInvalidArgument);
              int ranks = 0;
              member.expect(ncclCommCount(comm, &ranks), "counting", ncclInvalidArgument);
              ncclResult_t state = ncclSuccess;
              member.expect(ncclCommGetAsyncError(comm, &state), "asking", ncclInvalidArgument);
            }));
}

TEST(AfterTheEnd, AbortedIsRefusedToo) {
  asThreads(2, connected([](Member& member) {
              member.board.meet();
              ncclComm_t comm = member.comm;
              member.expect(ncclCommAbort(comm), "abort");
              member.comm = nullptr;
              float value = 1;
              member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr),
                            "after aborting", ncclInvalidArgument);
              member.expectError("the error", {"destroyed"});
            }));
}

// ---- Many -------------------------------------------------------------------------------------------------

TEST(Many, CommunicatorsComeAndGoWithoutTrace) {
  const int rounds = STRETTO_TEST_TSAN ? 50 : 500;
  const auto makeAndEnd = connected([](Member& member) {
    float value = 1;
    member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "sum");
    member.check(value == 2, "a wrong sum");
  });
  const auto many = [&](int times) {
    asThreads(
        2,
        [&](Member& member) {
          for (int round = 0; round < times; ++round) {
            makeAndEnd(member);
            if (!member.check(member.board.meet(), "left alone")) return;
          }
        },
        240);
  };
  many(20);
  Held before;
  ASSERT_TRUE(comesToRest(before)) << "threads, descriptors or mappings come and go";
  many(rounds);
  Held after;
  (void)eventually(10, [&] {
    after = Held::now();
    return after.threads <= before.threads && after.descriptors <= before.descriptors &&
           after.mappings <= before.mappings + 8;
  });
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.mappings, before.mappings + 8) << "of the allocator's own at most";
}

TEST(Many, SixtyFourRanksFinishEveryCollective) {
  asThreads(64, connected([](Member& member) {
              std::vector<float> buffer = bufferFor(member, 100);
              for (int kind = 0; kind < kCollectives - 1; ++kind) {
                const auto collective = static_cast<Collective>(kind);
                if (!member.expect(callOnce(collective, member, 100, buffer.data(), 63), nameOf(collective)))
                  return;
              }
              member.expect(callOnce(Collective::kAllReduce, member, 100, buffer.data()), "sum");
              member.check(buffer[6400] == 64, "a wrong sum");
              member.board.meet();
            }),
            120);
}

}  // namespace
}  // namespace stretto
