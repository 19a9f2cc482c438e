// For tests that choose a CPU level: when they end, the best one is back.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "primitives/host/reduce.hpp"

namespace stretto::testing {

class LevelGuard {
 public:
  ~LevelGuard() {
    unsetenv("STRETTO_CPU");
    EXPECT_TRUE(selectCpuLevel().ok());
  }
};

}  // namespace stretto::testing
