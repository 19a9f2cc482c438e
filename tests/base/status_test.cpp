#include "base/status.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>

namespace stretto {
namespace {

TEST(Status, IsOkUnlessSaidOtherwise) {
  EXPECT_TRUE(Status{}.ok());
  EXPECT_TRUE(kOkStatus.ok());
  EXPECT_EQ(kOkStatus.peer, -1);
  EXPECT_FALSE(Status{Code::kTimeout}.ok());
  EXPECT_LE(sizeof(Status), 4u) << "it is returned by every wait";
}

TEST(Status, EveryCodeHasItsName) {
  for (int code = 0; code <= static_cast<int>(Code::kAborted); ++code) {
    EXPECT_STRNE(nameOf(static_cast<Code>(code)), "unknown") << code;
    for (int other = 0; other < code; ++other) {
      EXPECT_STRNE(nameOf(static_cast<Code>(code)), nameOf(static_cast<Code>(other)));
    }
  }
  EXPECT_STREQ(nameOf(static_cast<Code>(200)), "unknown");
}

TEST(Status, FailKeepsTheWords) {
  const Status status = fail(Code::kRemote, "rank %d is %s", 3, "gone");
  EXPECT_EQ(status.code, Code::kRemote);
  EXPECT_EQ(status.peer, -1);
  EXPECT_EQ(lastError(), "rank 3 is gone");
  EXPECT_EQ(failAbout(5, Code::kTimeout, "late").peer, 5);
  EXPECT_EQ(lastError(), "late");
}

TEST(Status, FailErrnoSaysWhatTheSystemSaid) {
  errno = ENOENT;
  EXPECT_EQ(failErrno("open %s", "x").code, Code::kSystem);
  EXPECT_EQ(lastError(), "open x: No such file or directory");
}

TEST(Status, LongTextIsCutNotOverrun) {
  const std::string text(5000, 'x');
  EXPECT_FALSE(fail(Code::kInternal, "%s", text.c_str()).ok());
  EXPECT_EQ(lastError(), std::string(1023, 'x'));
}

TEST(Status, WordsBelongToTheThread) {
  setLastError("mine");
  std::string other = "unset";
  std::thread([&] {
    other = lastError();
    setLastError("theirs");
  }).join();
  EXPECT_EQ(other, "");
  EXPECT_EQ(lastError(), "mine");
}

Status passUp(Status inner) {
  STRETTO_TRY(inner);
  return Status{Code::kInternal};
}

TEST(Status, TryPassesFailuresUp) {
  EXPECT_EQ(passUp(Status{Code::kAborted, 2}).code, Code::kAborted);
  EXPECT_EQ(passUp(Status{Code::kAborted, 2}).peer, 2);
  EXPECT_EQ(passUp(kOkStatus).code, Code::kInternal);
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(7));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good.value(), 7);
  const std::unique_ptr<int> moved = std::move(good.value());
  EXPECT_EQ(*moved, 7);
  const Result<std::unique_ptr<int>> bad(Status{Code::kSystem});
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code, Code::kSystem);
  EXPECT_EQ(bad.value(), nullptr);
}

}  // namespace
}  // namespace stretto
