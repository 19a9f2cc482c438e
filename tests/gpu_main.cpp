// Runs the tests of a program for GPUs. Those that need one skip themselves where there is none, and then the
// whole has not passed: it ends with 77, which CTest shows as skipped.
#include <gtest/gtest.h>

#include "harness/device.hpp"

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  const int failed = RUN_ALL_TESTS();
  const bool skipped = ::testing::UnitTest::GetInstance()->skipped_test_count() != 0;
  constexpr int kSkipped = 77;
  return failed == 0 && skipped && stretto::testing::devicesThere() == 0 ? kSkipped : failed;
}
