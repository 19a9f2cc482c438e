// Sleeping on a word: of this process, of a segment that two mappings show, and of one that two processes
// have.
#include "platform/futex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::platform {
namespace {

using namespace stretto::testing;

constexpr uint64_t kLong = 60'000'000;

uint32_t load(uint32_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
void change(uint32_t& word) {
  std::atomic_ref(word).fetch_add(1, std::memory_order_release);
  futexWake(&word);
}
// Until the word is `value` at least.
void sleepUntil(uint32_t& word, uint32_t value) {
  for (uint32_t now = load(word); now < value; now = load(word)) futexWait(&word, now, kLong);
}

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

// What two processes have is a segment: the board's.
TEST(FutexOfProcesses, Wakes) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  asProcesses(2, [](Member& member) {
    auto& word = *reinterpret_cast<uint32_t*>(member.board.area(0));
    member.board.meet();
    for (uint32_t turn = 0; turn < 1000; turn += 2) {
      if (member.rank == 0) change(word);
      sleepUntil(word, turn + (member.rank == 0 ? 2 : 1));
      if (member.rank == 1) change(word);
    }
    member.board.meet();
    member.check(load(word) == 1000, "every turn came");
  });
}

// Whoever sleeps may be killed: the others are woken all the same.
TEST(FutexOfProcesses, OutlivesASleeperThatIsKilled) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const Board board(2);
  Processes ranks(board, [](Member& member) {
    auto& word = *reinterpret_cast<uint32_t*>(member.board.area(0));
    member.board.word(member.rank).store(1);
    sleepUntil(word, member.rank == 1 ? 1 : ~0u);
  });
  EXPECT_TRUE(eventually(60, [&] { return board.word(0) == 1 && board.word(1) == 1; }));
  ranks.kill(0);
  change(*reinterpret_cast<uint32_t*>(board.area(0)));
  ranks.finish(0);
}

}  // namespace
}  // namespace stretto::platform
