#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/json.hpp"
#include "harness/watchdog.hpp"

namespace stretto::json {
namespace {

TEST(JsonFile, WithoutAnEndIsRefused) {
  EXPECT_EQ(readFile("/dev/zero").status().code, Code::kInvalidUsage);
}

TEST(JsonFile, ThatIsAPipeIsRefusedAtOnce) {
  const stretto::testing::Watchdog watchdog("a pipe that nobody writes to", 20);
  const std::string path = ::testing::TempDir() + "json_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(readFile(path).status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find(path + " is no regular file"), std::string::npos) << lastError();
  unlink(path.c_str());
}

}  // namespace
}  // namespace stretto::json
