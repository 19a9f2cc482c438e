#include "base/watch.hpp"

#include <gtest/gtest.h>

#include "base/event.hpp"

namespace stretto {
namespace {

TEST(Watch, KnowsEachWatcher) {
  ASSERT_FALSE(watch::anybody());
  events::enable(true);
  EXPECT_TRUE(watch::anybody());
  EXPECT_FALSE(watch::watches(watch::kProfilerPlugin));
  watch::set(watch::kProfilerPlugin, true);
  events::enable(false);
  EXPECT_FALSE(events::on());
  EXPECT_TRUE(watch::watches(watch::kProfilerPlugin));
  watch::set(watch::kProfilerPlugin, false);
  EXPECT_FALSE(watch::anybody());
}

}  // namespace
}  // namespace stretto
