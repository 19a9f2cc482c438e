// Which cores a thread may run on, and that it can be bound to some of them.
#include "platform/cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace stretto::platform {
namespace {

std::vector<int> usable() {
  return usableCoreNumbers(kMostCores);
}

// On a thread of its own, whose binding ends with it.
template <typename Work>
void onAThread(Work work) {
  std::thread(work).join();
}

TEST(Cores, AreAscendingAndEachOnce) {
  const std::vector<int> cores = usable();
  ASSERT_FALSE(cores.empty());
  EXPECT_TRUE(std::is_sorted(cores.begin(), cores.end()));
  EXPECT_EQ(std::adjacent_find(cores.begin(), cores.end()), cores.end());
  EXPECT_EQ(usableCores(), static_cast<int>(cores.size()));
}

TEST(Cores, AThreadIsBoundToEachOfThem) {
  const std::vector<int> all = usable();
  for (const int core : all) {
    onAThread([&] {
      ASSERT_TRUE(bindThisThread({core})) << errno;
      EXPECT_EQ(usable(), std::vector<int>{core});
    });
  }
  EXPECT_EQ(usable(), all) << "what another thread is bound to is none of this one's";
}

TEST(Cores, AllOfThemAreABindingToo) {
  const std::vector<int> all = usable();
  onAThread([&] {
    ASSERT_TRUE(bindThisThread(all)) << errno;
    EXPECT_EQ(usable(), all);
  });
}

TEST(Cores, WhatCannotBeIsRefusedAndChangesNothing) {
  const std::vector<int> all = usable();
  std::vector<int> withAnother = all;
  withAnother.push_back(all.back() + 1);
  for (const auto& cores : {std::vector<int>{}, {-1}, {kMostCores * 64}, withAnother}) {
    errno = 0;
    EXPECT_FALSE(bindThisThread(cores));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(usable(), all);
  }
}

}  // namespace
}  // namespace stretto::platform
