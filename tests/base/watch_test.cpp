#include "base/watch.hpp"

#include <gtest/gtest.h>

namespace stretto {
namespace {

TEST(Watch, KnowsEachWatcher) {
  ASSERT_FALSE(watch::anybody());
  watch::set(watch::kDeviceMemory, true);
  EXPECT_TRUE(watch::anybody());
  EXPECT_FALSE(watch::watches(watch::kProfilerPlugin));
  watch::set(watch::kProfilerPlugin, true);
  watch::set(watch::kDeviceMemory, false);
  EXPECT_FALSE(watch::watches(watch::kDeviceMemory));
  EXPECT_TRUE(watch::watches(watch::kProfilerPlugin));
  watch::set(watch::kProfilerPlugin, false);
  EXPECT_FALSE(watch::anybody());
}

}  // namespace
}  // namespace stretto
