#include "platform/fence.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "platform/clock.hpp"

namespace stretto::platform {
namespace {

TEST(Fence, OfAllIsHadWhereItIsPromised) {
  EXPECT_EQ(heavyFence(), hasHeavyFence());
  bool there = !hasHeavyFence();
  std::thread([&] { there = hasHeavyFence(); }).join();
  EXPECT_EQ(there, hasHeavyFence()) << "every thread gets the same answer";
}

TEST(Fence, OfAllIsPassedApartWhereItIsPromised) {
  const HeavyFence fence;
  const uint64_t began = monotonicNanoseconds();
  while (!fence.isPassed() && secondsSince(began) < (hasHeavyFence() ? 60 : 0.2)) std::this_thread::yield();
  EXPECT_EQ(fence.isPassed(), hasHeavyFence());
}

// In a moment, when the kernel has been told of the process.
bool processFenceComes() {
  const uint64_t began = monotonicNanoseconds();
  while (hasProcessFence() && !processFence() && secondsSince(began) < 60) std::this_thread::yield();
  return processFence();
}

TEST(Fence, OfThisProcessIsHadWhereItIsPromised) {
  EXPECT_EQ(processFenceComes(), hasProcessFence());
}

// Of two threads that store and then load what the other stores, one sees the other.
void oneSideServesForBoth(bool (*heavy)(), int rounds) {
  std::atomic<int> round{0}, rare{0}, often{0};
  std::vector<std::atomic<int>> seenByOften(static_cast<size_t>(rounds) + 1);
  std::thread reader([&] {
    for (int at = 1; at <= rounds; ++at) {
      while (round.load(std::memory_order_acquire) < at) {
      }
      often.store(at, std::memory_order_relaxed);
      lightFence();
      seenByOften[static_cast<size_t>(at)].store(rare.load(std::memory_order_relaxed) == at ? 1 : -1,
                                                 std::memory_order_release);
    }
  });
  for (int at = 1; at <= rounds; ++at) {
    round.store(at, std::memory_order_release);
    rare.store(at, std::memory_order_relaxed);
    EXPECT_TRUE(heavy());
    const bool seen = often.load(std::memory_order_relaxed) == at;
    const std::atomic<int>& seenHere = seenByOften[static_cast<size_t>(at)];
    while (seenHere.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    EXPECT_TRUE(seen || seenHere.load() == 1) << "round " << at << ": neither saw the other";
  }
  reader.join();
}

TEST(Fence, OfAllServesForBothSides) {
  if (!hasHeavyFence()) GTEST_SKIP() << "this kernel or sandbox offers no membarrier";
  oneSideServesForBoth(heavyFence, 60);
}

TEST(Fence, OfThisProcessServesForBothSides) {
  if (!hasProcessFence()) GTEST_SKIP() << "this kernel or sandbox offers no membarrier";
  ASSERT_TRUE(processFenceComes());
  oneSideServesForBoth(processFence, 5000);
}

}  // namespace
}  // namespace stretto::platform
