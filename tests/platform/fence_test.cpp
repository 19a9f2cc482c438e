#include "platform/fence.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace stretto::platform {
namespace {

TEST(Fence, OfAllIsHadWhereItIsPromised) {
  EXPECT_EQ(heavyFence(), hasHeavyFence());
  bool there = !hasHeavyFence();
  std::thread([&] { there = hasHeavyFence(); }).join();
  EXPECT_EQ(there, hasHeavyFence()) << "every thread gets the same answer";
}

// Of two threads that store and then load what the other stores, one sees the other.
TEST(Fence, OneSideServesForBoth) {
  if (!hasHeavyFence()) GTEST_SKIP() << "this kernel or sandbox offers no membarrier";
  constexpr int kRounds = 60;
  std::atomic<int> round{0}, rare{0}, often{0};
  std::atomic<int> seenByOften[kRounds + 1] = {};
  std::thread reader([&] {
    for (int at = 1; at <= kRounds; ++at) {
      while (round.load(std::memory_order_acquire) < at) {
      }
      often.store(at, std::memory_order_relaxed);
      lightFence();
      seenByOften[at].store(rare.load(std::memory_order_relaxed) == at ? 1 : -1, std::memory_order_release);
    }
  });
  for (int at = 1; at <= kRounds; ++at) {
    round.store(at, std::memory_order_release);
    rare.store(at, std::memory_order_relaxed);
    EXPECT_TRUE(heavyFence());
    const bool seen = often.load(std::memory_order_relaxed) == at;
    while (seenByOften[at].load(std::memory_order_acquire) == 0) std::this_thread::yield();
    EXPECT_TRUE(seen || seenByOften[at].load() == 1) << "round " << at << ": neither saw the other";
  }
  reader.join();
}

}  // namespace
}  // namespace stretto::platform
