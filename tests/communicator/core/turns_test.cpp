#include "communicator/core/turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "platform/clock.hpp"

namespace stretto::communicator {
namespace {

constexpr double kPatienceSeconds = 20;
bool never() {
  return false;
}
double seconds() {
  return static_cast<double>(platform::monotonicNanoseconds()) * 1e-9;
}

TEST(Turns, AreDueInTheOrderInWhichTheyWereTaken) {
  Turns turns;
  EXPECT_TRUE(turns.quiet());
  const uint64_t first = turns.take(), second = turns.take();
  EXPECT_TRUE(turns.isDue(first));
  EXPECT_FALSE(turns.isDue(second));
  EXPECT_FALSE(turns.complete(first)) << "nobody waited";
  EXPECT_TRUE(turns.isDue(second));
  EXPECT_FALSE(turns.quiet());
  EXPECT_FALSE(turns.complete(second));
  EXPECT_TRUE(turns.quiet());
}

// Threads that run turns of one communicator, as user streams do, the later ones first.
TEST(Turns, OfOtherThreadsAreWaitedFor) {
  constexpr int kThreads = 6, kRounds = 200;
  Turns turns;
  std::vector<uint64_t> order;  // by whose turn it is
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    std::vector<uint64_t> taken;
    for (int i = 0; i < kThreads; ++i) taken.push_back(turns.take());
    for (int i = kThreads; i-- > 0;) {
      threads.emplace_back([&, turn = taken[static_cast<size_t>(i)]] {
        EXPECT_TRUE(turns.isDue(turn) || turns.await(turn, never));
        order.push_back(turn);
        turns.complete(turn);
      });
    }
    EXPECT_TRUE(turns.quiet() || turns.awaitQuiet(kPatienceSeconds));
    for (std::thread& thread : threads) thread.join();
  }
  ASSERT_EQ(order.size(), size_t{kThreads} * kRounds);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

// Threads that call at the same moment, as nccl.h does not allow: each has turns of its own, and none is left
// out, or somebody would wait for it.
TEST(Turns, OfThreadsThatTakeThemAtOnceAreDifferent) {
  constexpr int kThreads = 3, kRounds = 300, kEach = 200;
  for (int round = 0; round < kRounds; ++round) {
    Turns turns;
    const uint64_t before = turns.take();  // this thread is the first, and the others come while it goes on
    turns.complete(before);
    std::atomic<int> ready{0};
    std::vector<std::vector<uint64_t>> taken(kThreads);
    const auto takeAll = [&](size_t thread) {
      ++ready;
      while (ready.load() < kThreads) std::this_thread::yield();
      for (int i = 0; i < kEach; ++i) {
        const uint64_t turn = turns.take();
        taken[thread].push_back(turn);
        const double began = seconds();
        if (!turns.isDue(turn) && !turns.await(turn, [&] { return seconds() > began + kPatienceSeconds; })) {
          ADD_FAILURE() << "round " << round << ": turn " << turn << " never came";
          return;
        }
        turns.complete(turn);
      }
    };
    std::vector<std::thread> others;
    for (size_t thread = 1; thread < kThreads; ++thread) others.emplace_back(takeAll, thread);
    takeAll(0);
    for (std::thread& thread : others) thread.join();
    ASSERT_TRUE(turns.quiet());
    std::vector<uint64_t> all;
    for (const auto& some : taken) all.insert(all.end(), some.begin(), some.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), size_t{kThreads} * kEach);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], before + 1 + i) << "round " << round;
  }
}

TEST(Turns, ThatAreGivenUpEarlyHoldNobodyUp) {
  Turns turns;
  const uint64_t first = turns.take(), second = turns.take(), third = turns.take();
  EXPECT_FALSE(turns.await(second, [] { return true; }));
  turns.complete(second);  // given up, and nobody waits for it
  EXPECT_TRUE(turns.isDue(first));
  turns.complete(first);
  EXPECT_TRUE(turns.isDue(third));
  turns.complete(third);
  EXPECT_TRUE(turns.quiet());
  const uint64_t next = turns.take();
  EXPECT_FALSE(turns.complete(next)) << "nobody waits any more";
}

TEST(Turns, ThatAreGivenUpHaveTheirWorkDoneInTheirPlace) {
  Turns turns;
  std::vector<char> done;
  const uint64_t first = turns.take(), second = turns.take(), third = turns.take();
  turns.completeInOrder(second, [&] { done.push_back('b'); });
  turns.completeInOrder(third, [&] { done.push_back('c'); });
  EXPECT_TRUE(done.empty());
  turns.complete(first);
  EXPECT_EQ(done, (std::vector<char>{'b', 'c'}));
  EXPECT_TRUE(turns.quiet());
  const uint64_t next = turns.take();
  turns.completeInOrder(next, [&] { done.push_back('d'); });
  EXPECT_EQ(done.size(), 3u) << "a turn that is due is completed at once";
  EXPECT_TRUE(turns.quiet());
}

TEST(Turns, TellWhoeverListens) {
  Turns turns;
  turns.listen();
  turns.fenceOperations();
  EXPECT_TRUE(turns.quiet());
  EXPECT_TRUE(turns.complete(turns.take()));
}

TEST(Turns, AreNotWaitedForLongerThanAsked) {
  Turns turns;
  const uint64_t turn = turns.take();
  EXPECT_FALSE(turns.awaitQuiet(0.01));
  turns.complete(turn);
  EXPECT_TRUE(turns.awaitQuiet(kPatienceSeconds));
}

// Who takes a turn and then looks at the state, and who changes the state and then looks for turns: one of
// the two sees the other, or an operation would run in a communicator whose memory is gone. Both begin at the
// same tick, give or take a few.
TEST(Turns, AreSeenByWhoeverEndsTheCommunicatorOrSeeTheEnd) {
  constexpr int kRounds = 4000;
  constexpr uint64_t kLead = 20000, kApart = 300;  // ticks
  std::atomic<uint64_t> start{0};
  std::atomic<int> ended{0};
  std::vector<std::atomic<int>> ran(kRounds + 1);
  std::vector<Turns> turns(kRounds + 1);
  const auto await = [](uint64_t ticks) {
    while (platform::ticks() < ticks) {
    }
  };
  std::thread caller([&] {
    uint64_t last = 0;
    for (int at = 1; at <= kRounds; ++at) {
      while (start.load(std::memory_order_acquire) == last) std::this_thread::yield();
      last = start.load(std::memory_order_acquire);
      await(last + static_cast<uint64_t>(at) % kApart);
      turns[static_cast<size_t>(at)].take();
      ran[static_cast<size_t>(at)].store(ended.load(std::memory_order_relaxed) == at ? -1 : 1,
                                         std::memory_order_release);
    }
  });
  for (int at = 1; at <= kRounds; ++at) {
    const uint64_t here = platform::ticks() + kLead;
    start.store(here, std::memory_order_release);
    await(here + kApart / 2);
    ended.store(at, std::memory_order_relaxed);
    turns[static_cast<size_t>(at)].fenceOperations();
    const bool quiet = turns[static_cast<size_t>(at)].quiet();
    const std::atomic<int>& ranHere = ran[static_cast<size_t>(at)];
    while (ranHere.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    EXPECT_TRUE(!quiet || ranHere.load() < 0) << "round " << at << ": neither saw the other";
  }
  caller.join();
}

}  // namespace
}  // namespace stretto::communicator
