#include "base/parameters.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <set>

#include "base/scoped_variable.hpp"

namespace stretto {
namespace {

using testing::ScopedVariable;

constexpr Parameter kExample{"STRETTO_TEST_EXAMPLE", "7", "an example"};

class Parameters : public ::testing::Test {
 protected:
  ScopedVariable variable_{"STRETTO_TEST_EXAMPLE", nullptr};
};

TEST_F(Parameters, FallBackWhenUnsetOrEmpty) {
  EXPECT_FALSE(kExample.isSet());
  EXPECT_EQ(kExample.text(), "7");
  variable_.set("");
  EXPECT_FALSE(kExample.isSet());
  EXPECT_EQ(kExample.integer(0, 9).value(), 7);
}

TEST_F(Parameters, AreReadEachTime) {
  variable_.set("8");
  EXPECT_EQ(kExample.text(), "8");
  variable_.set("9");
  EXPECT_EQ(kExample.integer(0, 9).value(), 9);
}

TEST_F(Parameters, IntegersTakeSuffixes) {
  constexpr int64_t kMost = int64_t{1} << 62;
  const std::pair<const char*, int64_t> kGood[] = {
      {"0", 0},        {"-3", -3},      {"4k", 4096},    {"4K", 4096},
      {"2M", 2 << 20}, {"2m", 2 << 20}, {"1g", 1 << 30}, {"3G", int64_t{3} << 30}};
  for (const auto& [text, value] : kGood) {
    variable_.set(text);
    ASSERT_TRUE(kExample.integer(-10, kMost).ok()) << text;
    EXPECT_EQ(kExample.integer(-10, kMost).value(), value) << text;
  }
}

TEST_F(Parameters, RefuseWhatIsNoInteger) {
  for (const char* text :
       {"x", "4x", "4KB", "K", "1.5", "1e3", "0x10", "9999999999999999999", "9999999999G", "4 "}) {
    variable_.set(text);
    const auto value = kExample.integer(0, int64_t{1} << 62);
    EXPECT_EQ(value.status().code, Code::kInvalidUsage) << text;
  }
}

TEST_F(Parameters, SayWhatIsAllowed) {
  variable_.set("11");
  EXPECT_FALSE(kExample.integer(0, 10).ok());
  EXPECT_EQ(lastError(), "STRETTO_TEST_EXAMPLE=11: not a whole number from 0 to 10 (K, M and G allowed)");
  EXPECT_TRUE(kExample.integer(11, 11).ok());
}

TEST_F(Parameters, SecondsAreBoundedNumbers) {
  variable_.set("0.25");
  EXPECT_EQ(kExample.seconds(0, 1).value(), 0.25);
  for (const char* text : {"", "x", "1s", "-1", "1.5", "nan", "inf"}) {
    variable_.set(text);
    EXPECT_FALSE(kExample.seconds(0, 1).ok()) << text;  // "" means the default, 7, which is out of range
  }
}

TEST_F(Parameters, FlagsAreZeroOrOne) {
  variable_.set("1");
  EXPECT_TRUE(kExample.flag().value());
  variable_.set("0");
  EXPECT_FALSE(kExample.flag().value());
  for (const char* text : {"yes", "true", "2", "01"}) {
    variable_.set(text);
    EXPECT_EQ(kExample.flag().status().code, Code::kInvalidUsage) << text;
  }
}

TEST(ParameterList, NamesAreUniqueAndExplained) {
  const std::set<std::string> launchers = {"LOCAL_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE"};  // set by others
  std::set<std::string> names;
  for (const Parameter* parameter : parameters::all()) {
    const std::string name = parameter->name();
    EXPECT_TRUE(names.insert(name).second) << name << " is declared twice";
    const bool isOurs = name.starts_with("STRETTO_") || name.starts_with("NCCL_");
    EXPECT_TRUE(isOurs || launchers.contains(name)) << name;
    EXPECT_NE(std::string(parameter->help()), "") << name;
  }
  EXPECT_TRUE(names.contains("STRETTO_TABLE"));
  EXPECT_TRUE(names.contains("STRETTO_ALGO"));
}

TEST(ParameterList, DefaultsParse) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", nullptr);
  const ScopedVariable deterministic("STRETTO_DETERMINISTIC", nullptr);
  EXPECT_TRUE(parameters::kTimeout.seconds(0, 1e9).ok());
  EXPECT_FALSE(parameters::kDeterministic.flag().value());
}

}  // namespace
}  // namespace stretto
