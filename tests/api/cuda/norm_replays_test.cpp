// strettoAllReduceAddRmsNorm in CUDA graphs of ranks on GPUs: each replay adds its sums to the residual,
// which is exact here, so that one replay that went wrong is seen at the end. Ranks share the devices that
// there are. Against exact arithmetic and the parts, by every form, is tests/api/norm_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr float kEpsilon = 1e-6f;

int replays() {
  return getenv("STRETTO_TEST_SHARE") == nullptr ? 10000 : 3;
}

// One call of the graph, with buffers of its own.
struct Step {
  size_t tokens, hidden;
  const char* algorithm;  // null: the planner's
  const char* protocol;
  char *input = nullptr, *residual = nullptr, *normalised = nullptr;

  size_t count() const { return tokens * hidden; }
};

std::vector<Step> stepsFor(int ranks) {
  std::vector<Step> steps = {{1, 4096, nullptr, nullptr},
                             {37, 1000, "one_shot", "lamport"},
                             {300, 512, nullptr, nullptr},
                             {5, 513, "one_shot", "ll128"}};
  if (ranks > 2) steps.push_back({40, 513, "two_shot", "lamport"});
  return steps;
}

float inputOf(int rank, size_t i) {
  return static_cast<float>(static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 9) - 3);
}
float sumOf(int ranks, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += inputOf(rank, i);
  return sum;
}

void lay(Member& member, std::vector<Step>& steps) {
  char* inputs = member.device->at(0, nullptr);
  char* results = member.device->at(1, nullptr);
  for (Step& step : steps) {
    const size_t bytes = (step.count() * sizeof(float) + 255) / 256 * 256;
    step.input = std::exchange(inputs, inputs + bytes);
    step.residual = std::exchange(results, results + bytes);
    step.normalised = std::exchange(results, results + bytes);
    std::vector<float> values(step.count());
    for (size_t i = 0; i < values.size(); ++i) values[i] = inputOf(member.rank, i);
    const size_t all = values.size() * sizeof(float);
    member.device->upload(step.input, reinterpret_cast<const char*>(values.data()), all);
    values.assign(values.size(), 0);
    member.device->upload(step.residual, reinterpret_cast<const char*>(values.data()), all);
  }
}

bool call(Member& member, const Step& step) {
  strettoAddRmsNorm_t norm = STRETTO_ADD_RMS_NORM_INITIALIZER;
  norm.tokens = step.tokens;
  norm.hidden = step.hidden;
  norm.type = ncclFloat32;
  norm.epsilon = kEpsilon;
  norm.input = step.input;
  norm.residual = norm.residualOut = step.residual;
  norm.normalised = step.normalised;
  return member.expect(
             strettoCommForce(member.comm, "all_reduce_add_rms_norm", step.algorithm, step.protocol, 0, 0),
             "force") &&
         member.expect(strettoAllReduceAddRmsNorm(&norm, member.comm, member.stream()), "the call");
}

// After so many calls.
bool isRight(Member& member, const Step& step, int calls) {
  std::vector<float> residual(step.count()), normalised(step.count());
  const size_t bytes = step.count() * sizeof(float);
  member.device->download(reinterpret_cast<char*>(residual.data()), step.residual, bytes);
  member.device->download(reinterpret_cast<char*>(normalised.data()), step.normalised, bytes);
  for (size_t token = 0; token < step.tokens; ++token) {
    const size_t begin = token * step.hidden;
    double squares = 0;
    for (size_t i = begin; i < begin + step.hidden; ++i) {
      if (residual[i] != static_cast<float>(calls) * sumOf(member.ranks(), i)) {
        member.complain("%zu x %zu: residual[%zu] is %g after %d calls of %g", step.tokens, step.hidden, i,
                        static_cast<double>(residual[i]), calls,
                        static_cast<double>(sumOf(member.ranks(), i)));
        return false;
      }
      squares += static_cast<double>(residual[i]) * static_cast<double>(residual[i]);
    }
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(step.hidden) + static_cast<double>(kEpsilon));
    for (size_t i = begin; i < begin + step.hidden; ++i) {
      const double exact = static_cast<double>(residual[i]) * factor;
      if (std::fabs(static_cast<double>(normalised[i]) - exact) <= 1e-4 * std::fabs(exact)) continue;
      member.complain("%zu x %zu: normalised[%zu] is %g and not %g", step.tokens, step.hidden, i,
                      static_cast<double>(normalised[i]), exact);
      return false;
    }
  }
  return true;
}

class NormReplays : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(NormReplays, AddTheSumOfEach) {
  asThreads(GetParam(), connected([](Member& member) {
              std::vector<Step> steps = stepsFor(member.ranks());
              lay(member, steps);
              const auto meet = [&] { return member.board.meet(); };
              const auto work = [&] {
                bool fine = true;
                for (const Step& step : steps) fine = fine && call(member, step);
                return fine;
              };
              if (!work() || !member.check(member.device->inGraph(work, replays(), meet), "a graph")) return;
              for (const Step& step : steps) {
                if (!isRight(member, step, 1 + replays())) return;
              }
              ncclResult_t later = ncclSuccess;
              member.expect(ncclCommGetAsyncError(member.comm, &later), "asked for an error");
              member.expect(later, "an asynchronous error");
            }),
            250);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NormReplays, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace stretto
