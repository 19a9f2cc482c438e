// strettoDoctor, as a C program calls it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/json.hpp"
#include "harness/temporary_folder.hpp"
#include "observe/flight.hpp"
#include "stretto.h"

namespace stretto::observe {
namespace {

TEST(DoctorApi, WritesWhatFitsAndSaysWhatIsNeeded) {
  unsetenv("STRETTO_FLIGHT_DIR");
  const auto recorder = FlightRecorder::open({currentIdentity().value(), 5, 0, 1, "0.1.0"});
  ASSERT_TRUE(recorder.ok()) << lastError();
  const std::string target = std::to_string(getpid());
  size_t needed = 0;
  ASSERT_EQ(strettoDoctor(target.c_str(), nullptr, 0, &needed), ncclSuccess) << ncclGetLastError(nullptr);
  ASSERT_GT(needed, 100u);
  std::vector<char> text(needed + 1000, 'x');
  ASSERT_EQ(strettoDoctor(target.c_str(), text.data(), text.size(), &needed), ncclSuccess);
  ASSERT_LE(needed, text.size());
  EXPECT_EQ(text[needed - 1], 0);
  const auto parsed = json::parse(text.data());
  ASSERT_TRUE(parsed.ok()) << lastError();
  EXPECT_EQ(parsed.value().textAt("schema", 99).value(), "stretto.doctor/1");
  char few[11] = "0123456789";
  ASSERT_EQ(strettoDoctor(target.c_str(), few, 5, &needed), ncclSuccess);
  EXPECT_EQ(std::string(few, 4), std::string(text.data(), 4));
  EXPECT_EQ(few[4], 0);
  EXPECT_EQ(few[5], '5') << "beyond what was offered";
}

TEST(DoctorApi, RefusesWithASentence) {
  size_t needed = 0;
  EXPECT_EQ(strettoDoctor(nullptr, nullptr, 0, &needed), ncclInvalidArgument);
  EXPECT_EQ(strettoDoctor("1", nullptr, 0, nullptr), ncclInvalidArgument);
  EXPECT_EQ(strettoDoctor("1,", nullptr, 0, &needed), ncclInvalidArgument);
  EXPECT_EQ(strettoDoctor("/nonexistent", nullptr, 0, &needed), ncclSystemError);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("/nonexistent"), std::string::npos);
  const testing::TemporaryFolder empty("doctor");
  EXPECT_EQ(strettoDoctor(empty.path().c_str(), nullptr, 0, &needed), ncclInvalidUsage);
}

}  // namespace
}  // namespace stretto::observe
