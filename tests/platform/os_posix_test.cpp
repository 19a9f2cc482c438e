#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/os.hpp"

namespace stretto::os {
namespace {

TEST(HostName, IsCutToFit) {
  char whole[256] = {};
  ASSERT_EQ(::gethostname(whole, sizeof whole - 1), 0);
  ASSERT_GT(std::string(whole).size(), 1u);
  char name[256];
  EXPECT_TRUE(hostName(name, sizeof name));
  EXPECT_STREQ(name, whole);
  char cut[2];
  EXPECT_TRUE(hostName(cut, sizeof cut));
  EXPECT_EQ(cut, std::string(whole).substr(0, 1));
}

}  // namespace
}  // namespace stretto::os
