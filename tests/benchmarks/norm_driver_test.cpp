// norm_driver's judge and its report, without a GPU: right results pass, one wrong element of any kind is
// found, and a way that gave wrong numbers has no time and is no measure for others.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "../../benchmarks/cuda/norm_checks.hpp"
#include "../../benchmarks/cuda/norm_report.hpp"
#include "harness/temporary_folder.hpp"

namespace stretto::bench {
namespace {

constexpr int kRanks = 4, kTokens = 3, kHidden = 64;

float roundOf(double value) {
  return static_cast<float>(valueOf(bitsOf(static_cast<float>(value))));
}
// The nearest code by trying all of them.
uint8_t codeOf(double value) {
  uint8_t best = 0;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // not a number
    const auto each = static_cast<uint8_t>(code);
    if (std::fabs(valueOfCode(each) - value) < std::fabs(valueOfCode(best) - value)) best = each;
  }
  return best;
}

// What a step makes of the first inputs.
Results rightResults(const Call& call, const NormChecks& checks) {
  Results results;
  std::vector<std::vector<uint16_t>> inputs;
  for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(checks.input(rank, 0));
  for (size_t i = 0; i < inputs[0].size(); ++i) {
    double sum = 0;
    for (const auto& input : inputs) sum += valueOf(input[i]);
    const double bias = call.hasBias ? valueOf(checks.bias()[i % kHidden]) : 0;
    results.residual.push_back(
        bitsOf(static_cast<float>(static_cast<double>(roundOf(sum)) + valueOf(checks.start()[i]) + bias)));
  }
  for (size_t token = 0; token < kTokens; ++token) {
    double squares = 0, largest = 0;
    for (size_t i = 0; i < kHidden; ++i)
      squares += std::pow(valueOf(results.residual[token * kHidden + i]), 2);
    const double factor = 1 / std::sqrt(squares / kHidden + static_cast<double>(kEpsilon));
    std::vector<double> normalised;
    for (size_t i = 0; i < kHidden; ++i) {
      const double exact =
          valueOf(results.residual[token * kHidden + i]) * factor * valueOf(checks.gamma()[i]);
      normalised.push_back(static_cast<double>(roundOf(exact)));
      largest = std::max(largest, std::fabs(normalised.back()));
      results.normalised.push_back(bitsOf(static_cast<float>(exact)));
    }
    if (call.scaling == strettoScaleNone) continue;
    const double scale =
        call.scaling == strettoScalePerToken ? largest / 448 : static_cast<double>(kTensorScale);
    results.scales.push_back(static_cast<float>(scale));
    for (const double each : normalised) results.codes.push_back(codeOf(each / scale));
  }
  return results;
}

class NormDriverChecks : public ::testing::TestWithParam<Call> {
 protected:
  const NormChecks checks{GetParam(), kRanks, kTokens, kHidden};
  const Results right = rightResults(GetParam(), checks);
};

TEST_P(NormDriverChecks, PassRightResults) {
  checks.sums("right", right.residual, 0, true);
  checks.norm("right", right);
  checks.same("right", right, right);
}

TEST_P(NormDriverChecks, FindOneWrongElementOfEachKind) {
  const size_t at = kHidden + 7;
  Results wrong = right;
  wrong.residual[at] = bitsOf(static_cast<float>(valueOf(wrong.residual[at])) * 1.02f + 0.1f);
  EXPECT_THROW(checks.sums("wrong", wrong.residual, 0, true), Failure);
  EXPECT_THROW(checks.sameSums("wrong", wrong, right), Failure);
  EXPECT_THROW(checks.sums("of other inputs", right.residual, 1, true), Failure);
  if (GetParam().wantsNormalised) {
    wrong = right;
    wrong.normalised[at] = static_cast<uint16_t>(wrong.normalised[at] + 2);
    EXPECT_THROW(checks.norm("wrong", wrong), Failure);
  }
  wrong = right;
  wrong.residual[at] = bitsOf(std::nanf(""));
  EXPECT_THROW(checks.sums("not a number", wrong.residual, 0, true), Failure);
  if (GetParam().scaling == strettoScaleNone) return;
  wrong = right;
  wrong.codes[at] = static_cast<uint8_t>(wrong.codes[at] ^ 0x08);  // twice or half of it
  EXPECT_THROW(checks.norm("wrong", wrong), Failure);
  if (GetParam().scaling != strettoScalePerToken) return;
  wrong = right;
  wrong.scales[1] *= 1.01f;
  EXPECT_THROW(checks.norm("wrong", wrong), Failure);
}

INSTANTIATE_TEST_SUITE_P(OfEveryCall, NormDriverChecks, ::testing::ValuesIn(kCalls),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(NormDriverBits, SayHowManyBitsDiffer) {
  const NormChecks checks(kCalls[0], kRanks, kTokens, kHidden);
  Results one, other;
  one.residual = other.residual = {1, 2, 3, 4};
  other.residual[2] = 7;
  other.residual[3] = 7;
  try {
    checks.sameSums("fi", other, one);
    FAIL() << "not seen";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("in 2 of 4 places, the first of them 2"), std::string::npos)
        << failure.what();
  }
}

Setup setupOf(std::vector<std::string> words) {
  std::vector<char*> given = {nullptr};
  for (std::string& word : words) given.push_back(word.data());
  return setupFrom(static_cast<int>(given.size()), given.data());
}

// A way's time is ten times its place in the table.
Outcome outcomeOf(const std::vector<Way>& ways) {
  Outcome outcome;
  outcome.tokens = 8;
  outcome.hidden = 4096;
  outcome.device = "a GPU";
  outcome.bytesOfStep = 262144;
  for (size_t i = 0; i < ways.size(); ++i) {
    const double time = 10.0 * static_cast<double>(i + 1);
    outcome.times[ways[i].name] = {time + 1, time, time - 1};
  }
  return outcome;
}

TEST(NormDriverReport, AWayThatIsWrongHasNoTime) {
  const testing::TemporaryFolder folder("norms");
  const std::string path = folder / "norms.jsonl";
  const auto setup = setupOf({"--json", path});
  const std::vector<Way> ways = waysFor(setup, true);
  ::testing::internal::CaptureStdout();
  {
    NormReport report(setup, ways);
    report.begin("");
    Outcome outcome = outcomeOf(ways);
    outcome.wrong["fi one-shot"] = "it says \"no\"";
    outcome.times.erase("fi two-shot");
    outcome.unserved["fi two-shot"] = "too few tokens";
    report.add(outcome);
    report.end();
  }
  const std::string said = ::testing::internal::GetCapturedStdout();
  // fused is the third way, parts the second, and "fi early" the eighth and the only one of FlashInfer's that
  // is right.
  EXPECT_NE(said.find("       20.00       30.00"), std::string::npos) << said;
  EXPECT_NE(said.find("       wrong       80.00           -     1.500     0.375"), std::string::npos) << said;
  EXPECT_NE(said.find("fi one-shot: WRONG: it says \"no\""), std::string::npos) << said;
  EXPECT_NE(said.find("fi two-shot does not serve 8 x 4096: too few tokens"), std::string::npos) << said;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string rows = text.str();
  EXPECT_NE(rows.find("\"way\": \"fi one-shot\", \"verified\": false, \"why\": \"it says 'no'\"}"),
            std::string::npos);
  EXPECT_NE(rows.find("\"way\": \"fi two-shot\", \"served\": false, \"why\": \"too few tokens\"}"),
            std::string::npos);
  EXPECT_NE(
      rows.find(
          "\"way\": \"fused\", \"microseconds\": 30.000, \"least\": 29.000, \"most\": 31.000, \"turns\": 3, "
          "\"verified\": true}"),
      std::string::npos)
      << rows;
}

TEST(NormDriverReport, AFloorIsWhatTheFusedCallIsDividedBy) {
  const auto setup = setupOf({"--self-loop"});
  const std::vector<Way> ways = waysFor(setup, false);
  ASSERT_EQ(ways.size(), 7u);
  ::testing::internal::CaptureStdout();
  NormReport report(setup, ways);
  report.begin("its library was not named");
  report.add(outcomeOf(ways));
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("1 rank on one GPU"), std::string::npos) << said;
  EXPECT_NE(said.find("FlashInfer is not beside it: its library was not named"), std::string::npos) << said;
  EXPECT_NE(said.find("       50.00       60.00       70.00     1.500     0.429     0.500"),
            std::string::npos)
      << said;
}

TEST(NormDriverSetup, RefusesWhatItCannotDo) {
  EXPECT_THROW(setupOf({"--ranks", "1"}), Failure);
  EXPECT_THROW(setupOf({"--self-loop", "--ranks", "4"}), Failure);
  EXPECT_THROW(setupOf({"--hidden", "12"}), Failure);
  EXPECT_THROW(setupOf({"--tokens", ""}), Failure);
  EXPECT_THROW(setupOf({"--without", "fused"}), Failure);
  EXPECT_THROW(setupOf({"--nonsense"}), Failure);
  EXPECT_EQ(setupOf({"--self-loop"}).ranks, 1);
  EXPECT_EQ(setupOf({"--ranks", "8"}).ranks, 8);
  const auto without = setupOf({"--without", "fi early,own parts"});
  EXPECT_EQ(waysFor(without, true).size(), waysFor(setupOf({}), true).size() - 2);
}

}  // namespace
}  // namespace stretto::bench
