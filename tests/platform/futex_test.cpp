// Sleeping on a word: of this process, and of a segment that two mappings show.
#include "platform/futex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "futex_word.hpp"
#include "harness/now.hpp"
#include "harness/watchdog.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::platform {
namespace {

using namespace stretto::testing;

// Two threads hand a number back and forth, each through its own sight of one word.
void passBackAndForth(uint32_t& mine, uint32_t& others, uint32_t times) {
  std::thread other([&] {
    for (uint32_t turn = 1; turn < 2 * times; turn += 2) {
      sleepUntil(others, turn);
      change(others);
    }
  });
  for (uint32_t turn = 0; turn < 2 * times; turn += 2) {
    change(mine);
    sleepUntil(mine, turn + 2);
  }
  other.join();
  EXPECT_EQ(load(mine), 2 * times);
}

TEST(Futex, ReturnsAtOnceWhereTheWordHasChanged) {
  const Watchdog watchdog("a word that has changed", 30);
  uint32_t word = 1;
  EXPECT_FALSE(futexWait(&word, 0, kLong));
}

TEST(Futex, SleepsNoLongerThanItMay) {
  const Watchdog watchdog("a sleep that ends", 30);
  uint32_t word = 1;
  const double start = secondsNow();
  bool whole = false;
  while (!whole) whole = futexWait(&word, 1, 20'000);
  EXPECT_GE(secondsNow() - start, 0.015);
}

TEST(Futex, OfThisProcessWakes) {
  const Watchdog watchdog("threads that wake each other", 60);
  uint32_t word = 0;
  passBackAndForth(word, word, 500);
}

class FutexOfSegments : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(first_.ok() && second_.ok()) << lastError(); }
  static uint32_t& wordOf(const SharedMemory& memory, size_t index) {
    return reinterpret_cast<uint32_t*>(memory.data())[index];
  }
  const Result<SharedMemory> first_ = SharedMemory::create("futex", 8192);
  const Result<SharedMemory> second_ =
      SharedMemory::open(os::processId(), first_.ok() ? first_.value().descriptor() : -1, 8192);
};

TEST_F(FutexOfSegments, WakesThroughAnotherMapping) {
  const Watchdog watchdog("mappings that wake each other", 60);
  passBackAndForth(wordOf(first_.value(), 0), wordOf(second_.value(), 0), 500);
}

TEST_F(FutexOfSegments, ReturnsAtOnceWhereTheWordHasChanged) {
  const Watchdog watchdog("a word that has changed", 30);
  wordOf(first_.value(), 3) = 1;
  EXPECT_FALSE(futexWait(&wordOf(second_.value(), 3), 0, kLong));
}

TEST_F(FutexOfSegments, SleepsNoLongerThanItMay) {
  const Watchdog watchdog("a sleep that ends", 30);
  const double start = secondsNow();
  bool whole = false;
  while (!whole) whole = futexWait(&wordOf(first_.value(), 0), 0, 20'000);
  EXPECT_GE(secondsNow() - start, 0.015);
}

TEST_F(FutexOfSegments, WakesAllSleepersOfOneWord) {
  const Watchdog watchdog("many sleepers", 60);
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i) {
    const SharedMemory& memory = i % 2 == 0 ? first_.value() : second_.value();
    sleepers.emplace_back([&memory] { sleepUntil(wordOf(memory, 7), 1); });
  }
  change(wordOf(first_.value(), 7));
  for (std::thread& one : sleepers) one.join();
}

TEST_F(FutexOfSegments, KeepsWordsApart) {
  const Watchdog watchdog("two words", 60);
  std::thread other([&] { sleepUntil(wordOf(first_.value(), 1), 1); });
  for (int i = 0; i < 100; ++i) change(wordOf(second_.value(), 2));
  change(wordOf(second_.value(), 1));
  other.join();
  EXPECT_EQ(load(wordOf(first_.value(), 2)), 100u);
}

// More sleepers at once than a segment of Windows has places for.
TEST_F(FutexOfSegments, HasRoomForMoreSleepersThanPlaces) {
  const Watchdog watchdog("a crowd of sleepers", 100);
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 260; ++i) sleepers.emplace_back([&] { sleepUntil(wordOf(first_.value(), 0), 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  change(wordOf(second_.value(), 0));
  for (std::thread& one : sleepers) one.join();
}

}  // namespace
}  // namespace stretto::platform
