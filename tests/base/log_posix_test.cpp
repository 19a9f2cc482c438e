#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/log.hpp"
#include "base/scoped_variable.hpp"
#include "harness/child.hpp"
#include "harness/watchdog.hpp"

namespace stretto::log {
namespace {

using stretto::testing::ScopedVariable;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

// In a process of its own: a log file stays open.
TEST(LogFile, ThatIsAPipeWithoutAReaderIsReplacedByStderr) {
  const stretto::testing::Watchdog watchdog("a pipe that nobody reads", 20);
  const std::string path = ::testing::TempDir() + "log_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const ScopedVariable file("NCCL_DEBUG_FILE", path.c_str());
  const ScopedVariable level("NCCL_DEBUG", "INFO");
  EXPECT_EQ(stretto::testing::inChild([&] {
              alarm(10);  // the watchdog does not reach it
              CaptureStderr();
              reset();
              STRETTO_LOG(kInfo, kInit, "ranks %d", 4);
              const std::string text = GetCapturedStderr();
              const bool names = text.find(path) != std::string::npos;
              return names && text.find("ranks 4") != std::string::npos ? 0 : 1;
            }),
            0);
  unlink(path.c_str());
}

TEST(LogFile, NamesHoldHostAndProcess) {
  const std::string folder = ::testing::TempDir();
  const std::string pattern = folder + "/stretto_log_%p_%h.txt";
  EXPECT_EXIT(
      {
        const ScopedVariable file("NCCL_DEBUG_FILE", pattern.c_str());
        const ScopedVariable level("NCCL_DEBUG", "INFO");
        reset();
        STRETTO_LOG(kInfo, kInit, "to the file");
        char host[256] = "";
        gethostname(host, sizeof host - 1);
        const std::string path = folder + "/stretto_log_" + std::to_string(getpid()) + "_" + host + ".txt";
        FILE* written = fopen(path.c_str(), "r");
        char line[512] = "";
        const bool good = written != nullptr && fgets(line, sizeof line, written) != nullptr &&
                          std::string(line).find("STRETTO INFO to the file") != std::string::npos;
        unlink(path.c_str());
        _exit(good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace stretto::log
