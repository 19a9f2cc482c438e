#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "harness/wrapped_host.hpp"

namespace stretto {
namespace {

// A rank whose wait has become so long that its next step is a sleep, in this thread.
class Sleeper {
 public:
  Sleeper() {
    while (std::atomic_ref(window().sleeping).load() == 0) step();
  }
  void ring() { std::atomic_ref(window().bell).fetch_add(1); }
  // In seconds; not ok is a failure.
  double step() {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    EXPECT_TRUE(patience_.step().ok());
    return std::chrono::duration<double>(Clock::now() - began).count();
  }

 private:
  WindowHeader& window() { return job_.host(0).header(); }

  testing::Job job_{2, 4096, 4096, PeerAccess::kAddress};
  Patience patience_{job_.host(0), {.peer = 1}};
};

constexpr double kLongSleep = 0.02;
constexpr int kRounds = 20;  // the shortest of so many sleeps is no longer than it has to be

// Who rings may be another rank than the one whose bell this rank has missed.
TEST(Sleep, IsShortUntilOneWasSleptOut) {
  double shortest = 1;
  for (int round = 0; round < kRounds; ++round) {
    Sleeper sleeper;
    sleeper.ring();
    sleeper.step();
    shortest = std::min(shortest, sleeper.step());
  }
  EXPECT_LT(shortest, kLongSleep / 2);
}

TEST(Sleep, IsLongOnceOneWasSleptOut) {
  Sleeper sleeper;
  sleeper.step();
  sleeper.ring();
  sleeper.step();
  EXPECT_GE(sleeper.step(), kLongSleep / 2);
}

}  // namespace
}  // namespace stretto
