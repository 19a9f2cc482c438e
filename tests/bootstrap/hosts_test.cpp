// Liveness belongs to the living: who is told what, and how fast, when a process that hosts the session
// leaves, exits, dies or is stopped, whether it is a rank or not; and what exchanges do meanwhile.
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "bootstrap/membership.hpp"
#include "bootstrap/page.hpp"

namespace stretto::bootstrap {
namespace {

using namespace testing;

// How the process that made the unique id goes.
enum class Going { kExits, kEndsAtOnce, kKilled, kStopped };

const char* nameOf(Going how) {
  switch (how) {
    case Going::kExits:
      return "exits";
    case Going::kEndsAtOnce:
      return "ends without a word";
    case Going::kKilled:
      return "is killed";
    case Going::kStopped:
      return "is stopped";
  }
  return "";
}

void endHow(Going how) {
  if (how == Going::kExits) ::exit(0);
  if (how == Going::kEndsAtOnce) ::_exit(0);
  while (true) ::pause();
}

bool hasHeard(const Page& page, int rank, int losses) {
  return eventually(5, [&] { return page.heard[rank].losses.load() >= losses; });
}

// Kills ranks, all in one breath, and remembers when.
double killAll(const Processes& processes, std::initializer_list<int> ranks) {
  const double at = now();
  for (const int rank : ranks) processes.kill(rank);
  return at;
}

// Every one of `survivors` has heard of the loss of `rank` within a second, once.
void expectTold(const Page& page, const Canary& canary, std::initializer_list<int> survivors, int rank,
                pid_t pid, double killedAt) {
  for (const int survivor : survivors) {
    const Heard& heard = page.heard[survivor];
    EXPECT_TRUE(eventually(3, [&] { return heard.indexOf(rank) >= 0; }))
        << "rank " << survivor << " has not been told that rank " << rank << " is lost";
    if (heard.indexOf(rank) >= 0) expectLoss(heard, heard.indexOf(rank), rank, pid, killedAt, canary);
  }
}

// --- the three cases --------------------------------------------------------------------------------------

TEST(HostProcesses, ADeathAfterTheMakerHasLeftAndExited) {
  constexpr int kRanks = 4;
  for (const Going how : {Going::kExits, Going::kEndsAtOnce}) {
    SCOPED_TRACE(nameOf(how));
    const SharedPage<Page> page;
    Processes processes(kRanks, [&](int rank) {
      if (rank == 0) page->id.post(newId());
      auto membership = joinPage(*page, rank, kRanks);
      if (membership == nullptr) return 1;
      waitFor(page->joined, kRanks);
      if (rank == 0) {
        membership.reset();
        endHow(how);
      }
      if (rank == 2) ::pause();
      const bool told = hasHeard(*page, rank, 1);
      page->done.fetch_add(1);
      waitFor(page->go, 1);
      return told ? 0 : 2;
    });
    EXPECT_EQ(processes.wait(0), 0);
    ::usleep(20000);
    const Canary canary;
    const double killedAt = killAll(processes, {2});
    expectTold(*page, canary, {1, 3}, 2, processes.pid(2), killedAt);
    page->go = 1;
    for (const int rank : {1, 3}) {
      EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
      EXPECT_EQ(page->heard[rank].losses.load(), 1);
    }
  }
}

// The last slot makes the id and holds no rank.
TEST(HostProcesses, ADeathAfterAMakerWithoutRanksHasGone) {
  constexpr int kRanks = 4;
  for (const Going how : {Going::kExits, Going::kEndsAtOnce, Going::kKilled, Going::kStopped}) {
    for (const bool atOnce : {true, false}) {
      SCOPED_TRACE(std::string("the maker ") + nameOf(how) + (atOnce ? " at once" : " later"));
      const SharedPage<Page> page;
      Processes processes(kRanks + 1, [&](int slot) {
        if (slot == kRanks) {
          page->id.post(newId());
          waitFor(page->joined, kRanks);
          if (!atOnce) ::usleep(50000);
          page->done = 1;
          endHow(how);
        }
        const auto membership = joinPage(*page, slot, kRanks);
        if (membership == nullptr) return 1;
        if (slot == 2) ::pause();
        const bool told = hasHeard(*page, slot, 1);
        waitFor(page->go, 1);
        return told ? 0 : 2;
      });
      waitFor(page->done, 1);
      if (how == Going::kKilled) processes.kill(kRanks);
      if (how == Going::kStopped) ::kill(processes.pid(kRanks), SIGSTOP);
      if (how != Going::kStopped) processes.wait(kRanks);
      const Canary canary;
      const double killedAt = killAll(processes, {2});
      expectTold(*page, canary, {0, 1, 3}, 2, processes.pid(2), killedAt);
      page->go = 1;
      for (const int rank : {0, 1, 3}) {
        EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
        EXPECT_EQ(page->heard[rank].losses.load(), 1);
      }
      if (how == Going::kStopped) processes.kill(kRanks);
    }
  }
}

TEST(HostProcesses, ADeathWhileTheMakerWithRanksIsStopped) {
  constexpr int kRanks = 4;
  for (const int victim : {1, 2}) {
    SCOPED_TRACE("rank " + std::to_string(victim) + " is killed");
    const SharedPage<Page> page;
    Processes processes(kRanks, [&](int rank) {
      if (rank == 0) page->id.post(newId());
      const auto membership = joinPage(*page, rank, kRanks);
      if (membership == nullptr) return 1;
      if (rank == 0 || rank == victim) ::pause();
      const bool told = hasHeard(*page, rank, 1);
      waitFor(page->go, 1);
      return told ? 0 : 2;
    });
    waitFor(page->joined, kRanks);
    ::usleep(50000);
    ::kill(processes.pid(0), SIGSTOP);
    const Canary canary;
    const double killedAt = killAll(processes, {victim});
    expectTold(*page, canary, {victim == 1 ? 2 : 1, 3}, victim, processes.pid(victim), killedAt);
    page->go = 1;
    for (const int rank : {1, 2, 3}) {
      if (rank == victim) continue;
      EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
      EXPECT_EQ(page->heard[rank].losses.load(), 1);
    }
    processes.kill(0);
  }
}

// --- exchanges -------------------------------------------------------------------------------------------

// `rounds` exchanges, each checked; 0 or what went wrong.
int exchangeOften(Membership& membership, int rank, int ranks, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::string mine = std::to_string(rank) + " in " + std::to_string(round);
    const auto all = membership.exchange("often", bytesOf(mine), 20);
    if (!all.ok()) {
      fprintf(stderr, "rank %d, exchange %d: %s\n", rank, round, lastError().c_str());
      return 10;
    }
    for (int peer = 0; peer < ranks; ++peer) {
      const std::string theirs = std::to_string(peer) + " in " + std::to_string(round);
      if (bytesOf(all.value()[static_cast<size_t>(peer)]) != bytesOf(theirs)) return 11;
    }
  }
  return 0;
}

TEST(HostProcesses, ExchangesGoOnWithoutAMakerThatIsNoRank) {
  constexpr int kRanks = 3;
  for (const Going how : {Going::kExits, Going::kKilled, Going::kStopped}) {
    for (int delay = 0; delay < 12;
         delay += 3) {  // in milliseconds: before and after further hosts are there
      SCOPED_TRACE(std::string("the maker ") + nameOf(how) + " after " + std::to_string(delay) + " ms");
      const SharedPage<Page> page;
      Processes processes(kRanks + 1, [&](int slot) {
        if (slot == kRanks) {
          page->id.post(newId());
          waitFor(page->joined, kRanks);
          ::usleep(static_cast<useconds_t>(delay) * 1000);
          page->done = 1;
          endHow(how);
        }
        const auto membership = joinPage(*page, slot, kRanks);
        if (membership == nullptr) return 1;
        // Long enough that the maker goes in the middle of one.
        return exchangeOften(*membership, slot, kRanks, 400);
      });
      waitFor(page->done, 1);
      if (how == Going::kKilled) processes.kill(kRanks);
      if (how == Going::kStopped) ::kill(processes.pid(kRanks), SIGSTOP);
      for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
        EXPECT_EQ(page->heard[rank].losses.load(), 0);
      }
      if (how == Going::kStopped) processes.kill(kRanks);
    }
  }
}

// All but one have contributed when the maker goes; the last one comes a while later.
TEST(HostProcesses, AMakerThatGoesInTheMiddleOfAnExchange) {
  constexpr int kRanks = 3;
  for (const Going how : {Going::kExits, Going::kKilled, Going::kStopped}) {
    SCOPED_TRACE(nameOf(how));
    const SharedPage<Page> page;
    Processes processes(kRanks + 1, [&](int slot) {
      if (slot == kRanks) {
        page->id.post(newId());
        waitFor(page->joined, kRanks);
        ::usleep(100000);
        page->done = 1;
        endHow(how);
      }
      const auto membership = joinPage(*page, slot, kRanks);
      if (membership == nullptr) return 1;
      if (const int wrong = exchangeOften(*membership, slot, kRanks, 3); wrong != 0) return wrong;
      if (slot == 2) waitFor(page->go, 1);
      return exchangeOften(*membership, slot, kRanks, 1);
    });
    waitFor(page->done, 1);
    if (how == Going::kKilled) processes.kill(kRanks);
    if (how == Going::kStopped) ::kill(processes.pid(kRanks), SIGSTOP);
    if (how != Going::kStopped) processes.wait(kRanks);
    ::usleep(100000);
    page->go = 1;
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
      EXPECT_EQ(page->heard[rank].losses.load(), 0);
    }
    if (how == Going::kStopped) processes.kill(kRanks);
  }
}

// A host that does not read must not be told more than a socket and a little more can hold, and must find its
// members alive when it reads again.
TEST(HostProcesses, AStoppedHostMissesManyExchangesAndGoesOn) {
  constexpr int kRanks = 3;
  const SharedPage<Page> page;
  Processes processes(
      kRanks + 1,
      [&](int slot) {
        const auto membership = joinOrMakeId(*page, slot, kRanks);
        if (membership == nullptr) return 1;
        waitFor(page->go, 1);
        const std::vector<uint8_t> large(kMaxBlobBytes, static_cast<uint8_t>(slot));
        for (int round = 0; round < 1200; ++round) {  // more than a connection may queue
          if (!membership->exchange("large", large, 20).ok()) return 2;
        }
        page->done.fetch_add(1);
        waitFor(page->go, 2);
        ::usleep(100000);  // the host reads what it has missed
        if (membership->exchange("with all hosts", bytesOf("x"), 20).status().code != Code::kOk) return 3;
        return 0;
      },
      200);
  waitFor(page->joined, kRanks);
  ::usleep(50000);
  ::kill(processes.pid(kRanks), SIGSTOP);
  page->go = 1;
  // One that waits for the stopped host waits for ever; a busy machine may take a minute.
  EXPECT_TRUE(eventually(150, [&] { return page->done.load() == kRanks; }));
  ::kill(processes.pid(kRanks), SIGCONT);
  page->go = 2;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    EXPECT_EQ(page->heard[rank].losses.load(), 0);
  }
  processes.kill(kRanks);
}

// --- hosts that go one after the other
// -----------------------------------------------------------------------

TEST(HostProcesses, AHostAndAnotherRankAreKilledTogether) {
  constexpr int kRanks = 5;
  for (const auto& [first, second] : {std::pair{0, 1}, {0, 3}, {1, 4}, {3, 4}}) {
    for (const useconds_t pause : {0u, 3000u, 6000u, 50000u}) {
      SCOPED_TRACE("ranks " + std::to_string(first) + " and " + std::to_string(second) + " after " +
                   std::to_string(pause) + " us");
      const SharedPage<Page> page;
      Processes processes(kRanks, [&, first = first, second = second](int rank) {
        if (rank == 0) page->id.post(newId());
        const auto membership = joinPage(*page, rank, kRanks);
        if (membership == nullptr) return 1;
        if (rank == first || rank == second) ::pause();
        const bool told = hasHeard(*page, rank, 2);
        page->done.fetch_add(1);
        waitFor(page->go, 1);
        return told ? 0 : 2;
      });
      waitFor(page->joined, kRanks);
      ::usleep(pause);
      const Canary canary;
      const double killedAt = killAll(processes, {first, second});
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == first || rank == second) continue;
        expectTold(*page, canary, {rank}, first, processes.pid(first), killedAt);
        expectTold(*page, canary, {rank}, second, processes.pid(second), killedAt);
      }
      page->go = 1;
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == first || rank == second) continue;
        EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
        EXPECT_EQ(page->heard[rank].losses.load(), 2);
      }
    }
  }
}

TEST(HostProcesses, OneAfterTheOtherDownToTwo) {
  constexpr int kRanks = 6;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    const auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->go, 1);
    return 0;
  });
  waitFor(page->joined, kRanks);
  for (int victim = 0; victim < kRanks - 2; ++victim) {
    const Canary canary;
    const double killedAt = killAll(processes, {victim});
    for (int rank = victim + 1; rank < kRanks; ++rank) {
      expectTold(*page, canary, {rank}, victim, processes.pid(victim), killedAt);
      EXPECT_EQ(page->heard[rank].losses.load(), victim + 1);
    }
  }
  page->go = 1;
  for (const int rank : {kRanks - 2, kRanks - 1}) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

TEST(HostProcesses, ManyAtOnceDownToOne) {
  constexpr int kRanks = 7;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    const auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->go, 1);
    return 0;
  });
  waitFor(page->joined, kRanks);
  ::usleep(20000);
  const Canary canary;
  const double killedAt = killAll(processes, {0, 1, 2, 3, 5, 6});
  for (const int victim : {0, 1, 2, 3, 5, 6}) {
    expectTold(*page, canary, {4}, victim, processes.pid(victim), killedAt);
  }
  EXPECT_EQ(page->heard[4].losses.load(), kRanks - 1);
  page->go = 1;
  EXPECT_EQ(processes.wait(4), 0);
}

// It cannot come to the new host, but the kernel accepts for it; its death is noticed all the same.
TEST(HostProcesses, AStoppedRankIsAliveUntilItIsKilled) {
  constexpr int kRanks = 5;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    const auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->go, 1);
    return 0;
  });
  waitFor(page->joined, kRanks);
  ::usleep(50000);
  ::kill(processes.pid(4), SIGSTOP);
  const Canary canary;
  double killedAt = killAll(processes, {0, 1});  // both hosts
  for (const int rank : {2, 3}) {
    expectTold(*page, canary, {rank}, 0, processes.pid(0), killedAt);
    expectTold(*page, canary, {rank}, 1, processes.pid(1), killedAt);
  }
  ::usleep(700000);
  for (const int rank : {2, 3}) EXPECT_EQ(page->heard[rank].losses.load(), 2) << "a stopped rank is alive";
  killedAt = killAll(processes, {4});
  expectTold(*page, canary, {2, 3}, 4, processes.pid(4), killedAt);
  page->go = 1;
  for (const int rank : {2, 3}) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

// ... and when it goes on instead, it is told all that it has missed.
TEST(HostProcesses, AStoppedRankThatGoesOnIsAmongTheLiving) {
  constexpr int kRanks = 4;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->go, rank == 3 ? 1 : 2);
    membership.reset();
    return 0;
  });
  waitFor(page->joined, kRanks);
  ::usleep(50000);
  ::kill(processes.pid(3), SIGSTOP);
  killAll(processes, {0, 1});
  EXPECT_TRUE(hasHeard(*page, 2, 2));
  ::usleep(400000);
  ::kill(processes.pid(3), SIGCONT);
  EXPECT_TRUE(hasHeard(*page, 3, 2));
  page->go = 1;
  EXPECT_EQ(processes.wait(3), 0);
  ::usleep(400000);
  EXPECT_EQ(page->heard[2].losses.load(), 2) << "rank 3 has left with a goodbye";
  EXPECT_EQ(page->heard[3].losses.load(), 2);
  page->go = 2;
  EXPECT_EQ(processes.wait(2), 0);
}

// --- goodbyes
// -----------------------------------------------------------------------------------------------

TEST(HostProcesses, AGoodbyeDoesNotWaitForAStoppedHost) {
  constexpr int kRanks = 3;
  const SharedPage<Page> page;
  Processes processes(kRanks + 1, [&](int slot) {
    auto membership = joinOrMakeId(*page, slot, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->go, 1);
    const double start = now();
    membership.reset();
    page->seconds[slot] = now() - start;
    return 0;
  });
  waitFor(page->joined, kRanks);
  ::usleep(300000);  // until all ranks know of each other as hosts
  ::kill(processes.pid(kRanks), SIGSTOP);
  page->go = 1;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    EXPECT_LT(page->seconds[rank], 0.45);  // one that waits for its answer takes half a second at least
    EXPECT_EQ(page->heard[rank].losses.load(), 0);
  }
  processes.kill(kRanks);
}

// Its process ends when the goodbye is said: what has not gone out by then never will.
TEST(HostProcesses, AGoodbyeOfALateProcessIsNoLoss) {
  constexpr int kRanks = 3;
  const SharedPage<Page> page;
  Processes processes(kRanks + 1, [&](int slot) {
    auto membership = joinOrMakeId(*page, slot, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->joined, kRanks);
    if (slot == kRanks - 1) {
      const LateThread late(std::chrono::milliseconds(1200));
      membership.reset();
      endHow(Going::kEndsAtOnce);
    }
    waitFor(page->go, 1);
    return 0;
  });
  EXPECT_EQ(processes.wait(kRanks - 1), 0);
  ::usleep(300000);  // for those who stay to take it for a death
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(page->heard[rank].losses.load(), 0) << "rank " << rank << ": " << page->heard[rank].reasons[0];
  }
  page->go = 1;
  for (int rank = 0; rank < kRanks - 1; ++rank) EXPECT_EQ(processes.wait(rank), 0);
  processes.kill(kRanks);
}

// A launcher makes the id and goes, and a job is over at once. Returns what went wrong, in words, and in
// `late` by how many seconds the machine let a thread run late meanwhile.
std::string partWhileHostsChange(int round, double& late) {
  constexpr int kRanks = 4;
  const SharedPage<Page> page;
  Processes processes(kRanks + 1, [&](int slot) {
    if (slot == kRanks) {
      page->id.post(newId());
      waitFor(page->joined, kRanks);
      endHow(round % 2 == 0 ? Going::kExits : Going::kEndsAtOnce);
    }
    auto membership = joinPage(*page, slot, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->joined, kRanks);
    ::usleep(static_cast<useconds_t>(round * slot) * 700);
    if (slot == kRanks - 1) ::usleep(250000);  // stays behind, and would be told
    membership.reset();
    return 0;
  });
  const Canary canary;
  std::string wrong;
  for (int rank = 0; rank <= kRanks; ++rank) {
    const int status = processes.wait(rank);
    if (status != 0) wrong += "rank " + std::to_string(rank) + " ended with " + std::to_string(status) + "; ";
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const Heard& heard = page->heard[rank];
    if (heard.losses.load() != 0)
      wrong += "rank " + std::to_string(rank) + " was told that rank " + std::to_string(heard.ranks[0]) +
               " is lost: " + heard.reasons[0] + "; ";
  }
  late = canary.worst();
  return wrong;
}

// Hosts are found while ranks leave. Whoever does not answer for 50 ms may count as lost, so a round that
// went wrong is repeated where the machine itself held threads up for longer than that.
TEST(HostProcesses, GoodbyesWhileHostsChangeAreNoLosses) {
  constexpr double kLate = 0.05;
  for (int round = 0; round < 12; ++round) {
    double late = 0;
    std::string wrong = partWhileHostsChange(round, late);
    for (int again = 0; again < 4 && !wrong.empty() && late > kLate; ++again) {
      printf("round %d once more, as threads ran %.0f ms late: %s\n", round, late * 1e3, wrong.c_str());
      wrong = partWhileHostsChange(round, late);
    }
    EXPECT_EQ(wrong, "") << "round " << round << ", threads ran " << late * 1e3 << " ms late at most";
  }
}

TEST(HostProcesses, ManyCommunicatorsOfProcessesLeaveNothing) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 60;
  struct Ids {
    std::atomic<int> made{0};
    std::atomic<int> joined{0};
    UniqueId ids[kRounds];
  };
  const SharedPage<Ids> page;
  Processes processes(kRanks, [&](int rank) {
    const size_t before = descriptors();
    for (int round = 0; round < kRounds; ++round) {
      if (rank == round % kRanks) {
        page->ids[round] = newId();
        page->made = round + 1;
      }
      waitFor(page->made, round + 1);
      auto made = Membership::join(page->ids[round], rank, kRanks, 20);
      if (!made.ok()) return 1;
      if (round % 2 == 0) ::usleep(12000);  // so that there are more hosts
      if (!made.value()->exchange("once", {}, 20).ok()) return 2;
      page->joined.fetch_add(1);
      waitFor(page->joined, (round + 1) * kRanks);
    }
    if (!eventually(5, [] { return threads() == 1; })) return 3;
    return descriptors() <= before ? 0 : 4;
  });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

}  // namespace
}  // namespace stretto::bootstrap
