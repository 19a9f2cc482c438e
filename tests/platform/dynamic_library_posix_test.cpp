#include "platform/dynamic_library.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "harness/watchdog.hpp"

namespace stretto::platform {
namespace {

// The loader would wait for somebody who writes.
TEST(DynamicLibrary, ThatIsAPipeIsRefusedAtOnce) {
  const stretto::testing::Watchdog watchdog("a pipe that nobody writes to", 20);
  const std::string path = ::testing::TempDir() + "library_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string why;
  EXPECT_FALSE(DynamicLibrary::open(path, &why).isOpen());
  EXPECT_NE(why.find("no regular file"), std::string::npos) << why;
  EXPECT_FALSE(DynamicLibrary::openApart(path, nullptr).isOpen());
  unlink(path.c_str());
}

TEST(DynamicLibrary, IsFoundByNameAndByPath) {
  std::string why;
  EXPECT_TRUE(DynamicLibrary::open("libc.so.6", &why).isOpen()) << why;
  EXPECT_FALSE(DynamicLibrary::open("/nonexistent/libthing.so", &why).isOpen());
  EXPECT_NE(why.find("/nonexistent/libthing.so"), std::string::npos) << why;
}

}  // namespace
}  // namespace stretto::platform
