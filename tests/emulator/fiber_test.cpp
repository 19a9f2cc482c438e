// Fibers by themselves: what lies on their stacks, and their stacks. Kernels of the emulator do the rest.
#include "emulator/fiber.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto::emulator {
namespace {

TEST(Fiber, KeepsWhatItHasOnItsStackWhileOthersRun) {
  constexpr int kFibers = 40, kPauses = 5;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<double> sums(kFibers);
  for (int number = 0; number < kFibers; ++number) {
    fibers.push_back(std::make_unique<Fiber>([&, number] {
      alignas(32) double values[8];
      EXPECT_EQ(reinterpret_cast<uintptr_t>(&values) % 32, 0u);
      for (double& value : values) value = number;
      const double factor = 0.5 + number;
      for (int pause = 0; pause < kPauses; ++pause) {
        fibers[static_cast<size_t>(number)]->pause();
        for (double& value : values) value += factor;
      }
      for (const double value : values) sums[static_cast<size_t>(number)] += value;
    }));
  }
  for (int resumed = 0; resumed <= kPauses; ++resumed) {
    for (const auto& fiber : fibers) {
      EXPECT_FALSE(fiber->done());
      fiber->fetch();
      fiber->resume();
    }
  }
  for (int number = 0; number < kFibers; ++number) {
    EXPECT_TRUE(fibers[static_cast<size_t>(number)]->done());
    EXPECT_EQ(sums[static_cast<size_t>(number)], 8 * (number + kPauses * (0.5 + number)));
  }
}

TEST(Fiber, CatchesWhatIsThrownWithinIt) {
  std::string caught;
  std::unique_ptr<Fiber> fiber;
  fiber = std::make_unique<Fiber>([&] {
    try {
      fiber->pause();
      throw std::runtime_error("thrown after a pause");
    } catch (const std::exception& error) {
      caught = error.what();
    }
  });
  fiber->resume();
  fiber->resume();
  EXPECT_TRUE(fiber->done());
  EXPECT_EQ(caught, "thrown after a pause");
}

TEST(Fiber, LeavesItsStackToTheNext) {
  std::vector<uintptr_t> at;
  for (int round = 0; round < 3; ++round) {
    std::unique_ptr<Fiber> fiber;
    fiber = std::make_unique<Fiber>([&] {
      const int local = round;
      at.push_back(reinterpret_cast<uintptr_t>(&local));
      fiber->pause();  // and is never resumed
    });
    fiber->resume();
  }
  ASSERT_EQ(at.size(), 3u);
  EXPECT_EQ(at[0], at[1]);
  EXPECT_EQ(at[0], at[2]);
}

TEST(FiberDeathTest, AStackThatIsTooSmallEndsTheProgram) {
  const auto overrun = [] {
    Fiber fiber([] {
      volatile char all[Stack::kBytes];
      for (volatile char& each : all) each = 1;
    });
    fiber.resume();
  };
  EXPECT_DEATH(overrun(), "a fiber has overrun its stack");
}

}  // namespace
}  // namespace stretto::emulator
