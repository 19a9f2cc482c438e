// Ranks as processes: what must be noticed when one of them dies, leaves or exits, by whom and how fast.
#include <cstdio>
#include <cstdlib>

#include "bootstrap/forked.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/page.hpp"
#include "harness/watchdog.hpp"

#if STRETTO_THREAD_SANITIZER
// Children end by _exit(), where a background thread still runs (lifetime_test.cpp looks for real leaks), and
// their end is timed: the sanitizer must not sleep there.
extern "C" const char* __tsan_default_options() {
  return "report_thread_leaks=0:atexit_sleep_ms=0";
}
#endif

namespace stretto::bootstrap {
namespace {

using namespace testing;
using Made = Result<std::unique_ptr<Membership>>;

TEST(Processes, JoinAndExchange) {
  constexpr int kRanks = 4;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    page->id.wait();
    const double start = now();
    const auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    for (const char* name : {"first", "second"}) {
      const auto all = membership->exchange(name, bytesOf(std::to_string(rank * 7)), 20);
      if (!all.ok()) return 2;
      for (int peer = 0; peer < kRanks; ++peer) {
        if (bytesOf(all.value()[static_cast<size_t>(peer)]) != bytesOf(std::to_string(peer * 7))) return 3;
      }
    }
    page->seconds[rank] = now() - start;
    return membership->members()[0].pid != membership->members()[1].pid ? 0 : 4;
  });
  double slowest = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    slowest = std::max(slowest, page->seconds[rank]);
  }
  printf("4 processes: join + 2 exchanges in %.2f ms\n", slowest * 1e3);
  EXPECT_LT(slowest, 5.0);
}

TEST(Processes, AKilledMemberIsToldToAllSurvivors) {
  constexpr int kRanks = 4;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    const auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    if (rank == 2) ::pause();
    const auto got = membership->exchange("wait for the dead", {}, 20);
    const bool told = eventually(5, [&] { return page->heard[rank].losses.load() == 1; });
    return told && got.status().code == Code::kRemote && got.status().peer == 2 ? 0 : 2;
  });
  waitFor(page->joined, kRanks);
  const Canary canary;
  const double killedAt = now();
  processes.kill(2);
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    expectLoss(page->heard[rank], 0, 2, processes.pid(2), killedAt, canary);
    EXPECT_NE(std::string(page->heard[rank].reasons[0]).find("died"), std::string::npos)
        << page->heard[rank].reasons[0];
  }
}

TEST(Processes, AKilledHostIsToldToAllSurvivors) {
  constexpr int kRanks = 4;
  const SharedPage<Page> page;
  Processes processes(kRanks, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    const auto membership = joinPage(*page, rank, kRanks);
    if (membership == nullptr) return 1;
    if (rank == 0) ::pause();
    const auto got = membership->exchange("wait for the host", {}, 20);
    const bool told = eventually(5, [&] { return page->heard[rank].losses.load() == 1; });
    return told && got.status().code == Code::kRemote && got.status().peer == 0 ? 0 : 2;
  });
  waitFor(page->joined, kRanks);
  const Canary canary;
  const double killedAt = now();
  processes.kill(0);
  for (const int rank : {1, 2, 3}) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    expectLoss(page->heard[rank], 0, 0, processes.pid(0), killedAt, canary);
    EXPECT_EQ(page->heard[rank].losses.load(), 1);
  }
}

TEST(Processes, AKilledHostWithoutRanksIsNotFatal) {
  constexpr int kRanks = 2;
  const SharedPage<Page> page;
  Processes processes(kRanks + 1, [&](int slot) {
    const auto membership = joinOrMakeId(*page, slot, kRanks);
    if (membership == nullptr) return 1;
    waitFor(page->go, 1);
    return membership->exchange("without the maker", {}, 20).ok() ? 0 : 2;
  });
  waitFor(page->joined, kRanks);
  processes.kill(kRanks);
  EXPECT_EQ(processes.wait(kRanks), -SIGKILL);
  page->go = 1;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    EXPECT_EQ(page->heard[rank].losses.load(), 0);
  }
}

TEST(Processes, EveryRankOfAKilledProcessIsLost) {
  constexpr int kPerProcess = 3;
  const SharedPage<Page> page;
  Processes processes(2, [&](int slot) {
    if (slot == 0) page->id.post(newId());
    std::atomic<int> failures{0};
    std::vector<std::unique_ptr<Membership>> all(kPerProcess);
    asThreads(kPerProcess, [&](int i) {
      all[static_cast<size_t>(i)] = joinPage(*page, slot * kPerProcess + i, 2 * kPerProcess);
      if (all[static_cast<size_t>(i)] == nullptr) ++failures;
    });
    if (slot == 0) ::pause();  // hosts the session too
    for (int i = 0; i < kPerProcess; ++i) {
      if (!eventually(5, [&] { return page->heard[kPerProcess + i].losses.load() == kPerProcess; }))
        ++failures;
    }
    return failures.load();
  });
  waitFor(page->joined, 2 * kPerProcess);
  const Canary canary;
  const double killedAt = now();
  processes.kill(0);
  EXPECT_EQ(processes.wait(1), 0);
  for (int rank = kPerProcess; rank < 2 * kPerProcess; ++rank) {
    for (int lost = 0; lost < kPerProcess; ++lost) {
      expectLoss(page->heard[rank], page->heard[rank].indexOf(lost), lost, processes.pid(0), killedAt,
                 canary);
    }
  }
}

TEST(Processes, DeathDuringTheJoinEndsIt) {
  const SharedPage<Page> page;
  Processes processes(3, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    page->id.wait();
    page->joined.fetch_add(1);
    const Made made = Membership::join(page->id.wait(), rank, 4, 20);
    const bool named = lastError().find("rank 2 (") != std::string::npos;
    return made.status().code == Code::kRemote && named ? 0 : 1;
  });
  waitFor(page->joined, 3);
  ::usleep(200000);
  const Canary canary;
  const double killedAt = now();
  processes.kill(2);
  for (const int rank : {0, 1}) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
  EXPECT_LT(now() - killedAt, canary.limit(1));
}

TEST(Processes, TheHostDiesDuringTheJoin) {
  const SharedPage<Page> page;
  Processes processes(2, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    page->id.wait();
    page->joined.fetch_add(1);
    const Made made = Membership::join(page->id.wait(), rank, 3, 20);
    return made.status().code == Code::kRemote ? 0 : 1;
  });
  waitFor(page->joined, 2);
  ::usleep(200000);
  processes.kill(0);
  EXPECT_EQ(processes.wait(1), 0);
}

// exit(), not _exit(): the library says goodbye for what the program forgot.
TEST(Processes, AnExitWithoutDestroyIsALossWithItsReason) {
  const SharedPage<Page> page;
  Processes processes(3, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    auto membership = joinPage(*page, rank, 3);
    if (membership == nullptr) return 1;
    waitFor(page->joined, 3);
    if (rank == 1) {
      static Membership* forgotten = nullptr;
      forgotten = membership.release();
      EXPECT_NE(forgotten, nullptr);
      ::exit(0);
    }
    const bool told = eventually(5, [&] { return page->heard[rank].losses.load() == 1; });
    return told ? 0 : 2;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
  for (const int rank : {0, 2}) {
    EXPECT_EQ(page->heard[rank].ranks[0], 1);
    EXPECT_NE(std::string(page->heard[rank].reasons[0]).find("exited without"), std::string::npos)
        << page->heard[rank].reasons[0];
  }
}

TEST(Processes, AHostThatExitsNormallyIsNoLoss) {
  const SharedPage<Page> page;
  Processes processes(3, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    auto membership = joinPage(*page, rank, 3);
    if (membership == nullptr) return 1;
    waitFor(page->joined, 3);
    if (rank == 0) {
      membership.reset();
      ::exit(0);
    }
    waitFor(page->go, 1);
    const auto got = membership->exchange("without a host", {}, 20);
    membership.reset();
    return got.status().code == Code::kRemote ? 0 : 2;
  });
  EXPECT_EQ(processes.wait(0), 0);
  page->go = 1;
  for (const int rank : {1, 2}) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    EXPECT_EQ(page->heard[rank].losses.load(), 0);
  }
}

#if !STRETTO_THREAD_SANITIZER  // it supports no threads after a fork from several threads

// A child process keeps copies of its parent's sockets unless somebody closes them; it must not hide the
// parent's death.
TEST(Processes, AForkedChildDoesNotHideADeath) {
  const SharedPage<Page> page;
  Processes processes(3, [&](int rank) {
    if (rank == 0) page->id.post(newId());
    const auto membership = joinPage(*page, rank, 3);
    if (membership == nullptr) return 1;
    if (rank == 1) {
      if (::fork() == 0) {
        page->go = 1;
        ::sleep(5);
        ::_exit(0);
      }
      ::pause();
    }
    return eventually(5, [&] { return page->heard[rank].losses.load() == 1; }) ? 0 : 2;
  });
  waitFor(page->joined, 3);
  waitFor(page->go, 1);
  const Canary canary;
  const double killedAt = now();
  processes.kill(1);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
    expectLoss(page->heard[rank], 0, 1, processes.pid(1), killedAt, canary);
  }
}

TEST(Processes, AForkedChildHasAServiceOfItsOwn) {
  const SharedPage<Page> page;
  Processes processes(1, [&](int) {
    auto parent = Membership::join(newId(), 0, 1, 20);
    if (!parent.ok()) return 1;
    const pid_t child = ::fork();
    if (child == 0) {
      if (parent.value()->exchange("not mine", {}, 5).status().code != Code::kInvalidUsage) ::_exit(2);
      parent.value()->sayGoodbye(Leaving::kAborted);
      parent.value().reset();
      const UniqueId id = newId();
      std::atomic<int> failures{0};
      asThreads(2, [&](int rank) {
        const Made mine = Membership::join(id, rank, 2, 20);
        if (!mine.ok() || !mine.value()->exchange("child", {}, 20).ok()) ++failures;
      });
      ::_exit(failures == 0 ? 0 : 3);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 4;
    return parent.value()->exchange("still alive", {}, 5).ok() ? 0 : 5;
  });
  EXPECT_EQ(processes.wait(0), 0);
}

#endif

}  // namespace
}  // namespace stretto::bootstrap
