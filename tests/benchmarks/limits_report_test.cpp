// The limits' table and JSON: what is measured arrives there, and what cannot be is refused.
#include "../../benchmarks/cuda/limits_report.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "harness/temporary_folder.hpp"

namespace stretto::bench {
namespace {

std::string saved(const LimitsReport& report) {
  const testing::TemporaryFolder folder("limits");
  const std::string path = folder / "report.json";
  report.save(path);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(LimitsReport, KeepsBlocksChunkAndRate) {
  LimitsReport report("a GPU, a GPU", 2);
  report.add({.limit = "bulk store", .blocks = 8, .chunk = 16384, .bytes = 350'000'000, .us = 1000});
  report.add({.limit = "empty kernel in a graph", .us = 0.5});
  const std::string text = saved(report);
  EXPECT_NE(text.find("\"schema\":\"stretto.limits/1\",\"gpus\":2"), std::string::npos) << text;
  EXPECT_NE(text.find("\"blocks\":8,\"chunk\":16384,\"bytes\":350000000,\"us\":1000.0000,\"gbps\":350.000"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"us\":0.5000,\"gbps\":0.000"), std::string::npos) << text;
}

TEST(LimitsReport, RefusesATimeOfNothing) {
  LimitsReport report("a GPU", 1);
  EXPECT_THROW(report.add({.limit = "store", .bytes = 1, .us = 0}), Failure);
}

TEST(LimitsReport, AFailureStaysOneLineOfJson) {
  LimitsReport report("a GPU", 1);
  report.fail("no \"peer\"\naccess");
  EXPECT_NE(saved(report).find("\"failure\":\"no  peer  access\""), std::string::npos);
}

}  // namespace
}  // namespace stretto::bench
