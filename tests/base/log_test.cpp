#include "base/log.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/os.hpp"
#include "base/scoped_variable.hpp"
#include "base/status.hpp"

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
  snprintf(end, sizeof end, ":%d:%d STRETTO INFO ranks 4\n", os::processId(), os::threadId());
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

}  // namespace
}  // namespace stretto::log
