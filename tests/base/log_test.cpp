#include "base/log.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/scoped_variable.hpp"
#include "base/status.hpp"
#include "harness/child.hpp"
#include "harness/watchdog.hpp"

namespace stretto::log {
namespace {

using stretto::testing::ScopedVariable;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

class Log : public ::testing::Test {
 protected:
  void use(const char* level, const char* subsystems = nullptr) {
    level_.set(level);
    subsystems_.set(subsystems);
    reset();
  }
  ~Log() override {
    level_.set(nullptr);
    subsystems_.set(nullptr);
    reset();
  }

  ScopedVariable level_{"NCCL_DEBUG", nullptr};
  ScopedVariable subsystems_{"NCCL_DEBUG_SUBSYS", nullptr};
  ScopedVariable file_{"NCCL_DEBUG_FILE", nullptr};
};

TEST_F(Log, IsSilentByDefault) {
  use(nullptr);
  EXPECT_FALSE(enabled(Level::kWarn, Subsystem::kInit));
  EXPECT_FALSE(enabled(Level::kVersion, Subsystem::kInit));
  use("nonsense");
  EXPECT_FALSE(enabled(Level::kWarn, Subsystem::kInit));
}

TEST_F(Log, LevelsAreOrdered) {
  use("warn");
  EXPECT_TRUE(enabled(Level::kVersion, Subsystem::kInit));
  EXPECT_TRUE(enabled(Level::kWarn, Subsystem::kInit));
  EXPECT_FALSE(enabled(Level::kInfo, Subsystem::kInit));
  use("TRACE");
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kInit));
  EXPECT_TRUE(enabled(Level::kTrace, Subsystem::kInit));
  use("VERSION");
  EXPECT_FALSE(enabled(Level::kWarn, Subsystem::kInit));
}

// In a process of its own: a log file stays open.
TEST_F(Log, ThatGoesToAPipeWithoutAReaderGoesToStderr) {
  const stretto::testing::Watchdog watchdog("a pipe that nobody reads", 20);
  const std::string path = ::testing::TempDir() + "log_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  file_.set(path.c_str());
  EXPECT_EQ(stretto::testing::inChild([&] {
              alarm(10);  // the watchdog does not reach it
              CaptureStderr();
              use("INFO");
              STRETTO_LOG(kInfo, kInit, "ranks %d", 4);
              const std::string text = GetCapturedStderr();
              const bool names = text.find(path) != std::string::npos;
              return names && text.find("ranks 4") != std::string::npos ? 0 : 1;
            }),
            0);
  unlink(path.c_str());
}

TEST_F(Log, SubsystemsChooseInfoButNeverWarnings) {
  use("INFO");
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kInit));
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kEnv));
  EXPECT_FALSE(enabled(Level::kInfo, Subsystem::kColl));
  use("INFO", "COLL,NET");
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kColl));
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kNet));
  EXPECT_FALSE(enabled(Level::kInfo, Subsystem::kInit));
  EXPECT_TRUE(enabled(Level::kWarn, Subsystem::kInit));
  use("INFO", "^COLL");
  EXPECT_FALSE(enabled(Level::kInfo, Subsystem::kColl));
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kTuning));
  use("INFO", "ALL");
  EXPECT_TRUE(enabled(Level::kInfo, Subsystem::kAlloc));
}

TEST_F(Log, LinesGoToStderrAndSayWhoTheyAreFrom) {
  use("INFO");
  CaptureStderr();
  CaptureStdout();
  STRETTO_LOG(kInfo, kInit, "ranks %d", 4);
  STRETTO_LOG(kInfo, kColl, "never seen");
  const std::string text = GetCapturedStderr();
  EXPECT_EQ(GetCapturedStdout(), "");
  char end[96];
  snprintf(end, sizeof end, ":%d:%d STRETTO INFO ranks 4\n", getpid(), gettid());
  EXPECT_TRUE(text.size() > strlen(end) && text.ends_with(end)) << text;
}

TEST_F(Log, ArgumentsAreNotEvaluatedWhenOff) {
  use(nullptr);
  int evaluated = 0;
  STRETTO_LOG(kWarn, kInit, "%d", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST_F(Log, FailuresAreLoggedOnce) {
  use("WARN");
  CaptureStderr();
  const Status status = [] {
    STRETTO_TRY(fail(Code::kInternal, "the reason"));
    return kOkStatus;
  }();
  const std::string text = GetCapturedStderr();
  EXPECT_FALSE(status.ok());
  const size_t first = text.find("the reason");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("the reason", first + 1), std::string::npos);
}

TEST_F(Log, LongLinesAreCutNotOverrun) {
  use("INFO");
  CaptureStderr();
  STRETTO_LOG(kInfo, kInit, "%s", std::string(10000, 'x').c_str());
  const std::string text = GetCapturedStderr();
  EXPECT_LT(text.size(), 2000u);
  EXPECT_EQ(text.back(), '\n');
}

// In a child, because the file stays open until the process ends.
TEST_F(Log, FileNamesHoldHostAndProcess) {
  const std::string folder = ::testing::TempDir();
  const std::string pattern = folder + "/stretto_log_%p_%h.txt";
  EXPECT_EXIT(
      {
        file_.set(pattern.c_str());
        use("INFO");
        STRETTO_LOG(kInfo, kInit, "to the file");
        char host[256] = "";
        gethostname(host, sizeof host - 1);
        const std::string path = folder + "/stretto_log_" + std::to_string(getpid()) + "_" + host + ".txt";
        FILE* file = fopen(path.c_str(), "r");
        char line[512] = "";
        const bool good = file != nullptr && fgets(line, sizeof line, file) != nullptr &&
                          std::string(line).find("STRETTO INFO to the file") != std::string::npos;
        unlink(path.c_str());
        _exit(good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace stretto::log
