#include "platform/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

namespace stretto::platform {
namespace {

TEST(Clock, DoesNotGoBack) {
  uint64_t before = monotonicNanoseconds();
  for (int i = 0; i < 100000; ++i) {
    const uint64_t now = monotonicNanoseconds();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(Clock, IsFinerThanAMicrosecond) {
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 10000; ++i) {
    const uint64_t start = monotonicNanoseconds();
    uint64_t now = start;
    while (now == start) now = monotonicNanoseconds();
    least = std::min(least, now - start);
  }
  EXPECT_LT(least, 1000u);
}

TEST(Clock, OfThreadsAndOfTheWorldGoAtOneSpeed) {
  const uint64_t ticksBefore = ticks();
  const uint64_t before = monotonicNanoseconds();
  const uint64_t realBefore = realtimeNanoseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double monotonic = secondsSince(before);
  const double real = static_cast<double>(realtimeNanoseconds() - realBefore) * 1e-9;
  const double counted = tickSeconds(ticks() - ticksBefore);
  EXPECT_GE(monotonic, 0.19);
  EXPECT_NEAR(counted / monotonic, 1, 0.2);
  EXPECT_NEAR(real / monotonic, 1, 0.2);
}

TEST(Clock, OfTheWorldIsThatOfTheLibrary) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const double there = std::chrono::duration<double>(now).count();
  EXPECT_NEAR(static_cast<double>(realtimeNanoseconds()) * 1e-9, there, 5);
}

}  // namespace
}  // namespace stretto::platform
