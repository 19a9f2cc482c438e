#include "base/unknown_variables.hpp"

#include <gtest/gtest.h>

namespace stretto {
namespace {

std::string about(const std::string& name) {
  const auto all = aboutUnknownVariables({name});
  return all.empty() ? "" : all[0];
}

TEST(UnknownVariables, KnownOnesAndOthersPeoplesAreLeftAlone) {
  for (const char* name : {"STRETTO_ALGO", "STRETTO_RANK", "STRETTO_TRACE_DIR", "STRETTO_TEST_SHARE", "PATH",
                           "NCCL_DEBUG", "STRETTOX", ""}) {
    EXPECT_EQ(about(name), "") << name;
  }
}

TEST(UnknownVariables, MisspeltOnesAreToldWithTheNearest) {
  EXPECT_NE(about("STRETTO_ALGOO").find("STRETTO_ALGO meant"), std::string::npos);
  EXPECT_NE(about("STRETTO_TIMOUT").find("STRETTO_TIMEOUT meant"), std::string::npos);
  EXPECT_NE(about("STRETTO_SHARE_DEVICE").find("STRETTO_SHARED_DEVICE meant"), std::string::npos);
  EXPECT_NE(about("STRETTO_AFFINITY").find("nothing of Stretto reads it"), std::string::npos);
  const std::string far = about("STRETTO_COMPLETELY_ELSE");
  EXPECT_NE(far, "");
  EXPECT_EQ(far.find("meant"), std::string::npos) << far;
}

TEST(UnknownVariables, EachIsToldOnce) {
  EXPECT_EQ(aboutUnknownVariables({"STRETTO_A", "HOME", "STRETTO_RINGS", "STRETTO_B"}).size(), 2u);
}

}  // namespace
}  // namespace stretto
