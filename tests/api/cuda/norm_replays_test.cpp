// strettoAllReduceAddRmsNorm in CUDA graphs of ranks on GPUs: each replay adds its sums to the residual,
// which is exact here, so that one replay that went wrong is seen at the end. Ranks share the devices that
// there are. Residuals are in place, and of some calls normalised tokens too: these take the place of the
// input, which the graph copies there before each. Against exact arithmetic and the parts, by every form, is
// tests/api/norm_test.cpp.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "harness/device_mode.hpp"
#include "harness/oracle.hpp"
#include "harness/ranks.hpp"
#include "harness/share.hpp"
#include "primitives/norm.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr float kEpsilon = 1e-6f;

int replays() {
  return isShortened() ? 3 : 10000;
}

// One call of the graph, with buffers of its own.
struct Step {
  size_t tokens, hidden;
  const char* algorithm;  // null: the planner's
  const char* protocol;
  strettoScale_t scaling = strettoScaleNone;
  ncclDataType_t quantised = ncclFloat8e4m3;
  bool isInPlace = false;
  char *input = nullptr, *residual = nullptr, *normalised = nullptr, *codes = nullptr, *scales = nullptr;

  size_t count() const { return tokens * hidden; }
  size_t bytes() const { return count() * sizeof(float); }
  size_t scaleCount() const { return scaling == strettoScalePerTensor ? 1 : tokens; }
};

constexpr float kTensorScale = 0.125f;

std::vector<Step> stepsFor(int ranks) {
  std::vector<Step> steps = {{1, 4096, nullptr, nullptr},
                             {37, 1000, "one_shot", "lamport"},
                             {300, 512, nullptr, nullptr},
                             {5, 513, "one_shot", "ll128"},
                             {6, 516, nullptr, nullptr, strettoScalePerToken, ncclFloat8e4m3, true},
                             {3, 1028, "one_shot", "lamport", strettoScalePerTensor, ncclFloat8e5m2, true},
                             {5, 513, "one_shot", "lamport", strettoScalePerToken, ncclFloat8e5m2, true},
                             {4, 1000, "one_shot", "ll128", strettoScalePerToken, ncclFloat8e4m3, true}};
  if (ranks > 2) {
    steps.push_back({40, 513, "two_shot", "lamport"});
    steps.push_back({40, 516, "two_shot", "lamport", strettoScalePerToken, ncclFloat8e4m3, true});
  }
  return steps;
}

float inputOf(int rank, size_t i) {
  return static_cast<float>(static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 9) - 3);
}
float sumOfInputs(int ranks, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += inputOf(rank, i);
  return sum;
}

void lay(Member& member, std::vector<Step>& steps) {
  char* inputs = member.device->at(0, nullptr);
  char* results = member.device->at(1, nullptr);
  const auto place = [](char*& from, size_t bytes) {
    return std::exchange(from, from + (bytes + 255) / 256 * 256);
  };
  for (Step& step : steps) {
    step.input = place(inputs, step.bytes());
    step.residual = place(results, step.bytes());
    step.normalised = place(results, step.bytes());
    step.codes = place(results, step.count());
    step.scales = place(results, step.scaleCount() * sizeof(float));
    std::vector<float> values(step.count());
    for (size_t i = 0; i < values.size(); ++i) values[i] = inputOf(member.rank, i);
    member.device->upload(step.input, reinterpret_cast<const char*>(values.data()), step.bytes());
    values.assign(values.size(), 0);
    member.device->upload(step.residual, reinterpret_cast<const char*>(values.data()), step.bytes());
    values.assign(step.scaleCount(), kTensorScale);
    member.device->upload(step.scales, reinterpret_cast<const char*>(values.data()),
                          step.scaleCount() * sizeof(float));
  }
}

bool call(Member& member, const Step& step) {
  strettoAddRmsNorm_t norm = STRETTO_ADD_RMS_NORM_INITIALIZER;
  norm.tokens = step.tokens;
  norm.hidden = step.hidden;
  norm.type = ncclFloat32;
  norm.epsilon = kEpsilon;
  norm.input = step.isInPlace ? step.normalised : step.input;
  norm.residual = norm.residualOut = step.residual;
  norm.normalised = step.normalised;
  norm.scaling = step.scaling;
  norm.quantisedType = step.quantised;
  norm.quantised = step.codes;
  norm.scales = reinterpret_cast<float*>(step.scales);
  if (step.isInPlace &&
      !member.check(cudaMemcpyAsync(step.normalised, step.input, step.bytes(), cudaMemcpyDeviceToDevice,
                                    member.stream()) == cudaSuccess,
                    "a copy"))
    return false;
  return member.expect(
             strettoCommForce(member.comm, "all_reduce_add_rms_norm", step.algorithm, step.protocol, 0, 0),
             "force") &&
         member.expect(strettoAllReduceAddRmsNorm(&norm, member.comm, member.stream()), "the call");
}

// Exactly: of the normalised tokens as they are.
bool codesAreRight(Member& member, const Step& step, const std::vector<float>& normalised) {
  if (step.scaling == strettoScaleNone) return true;
  std::vector<char> codes(step.count());
  std::vector<float> scales(step.scaleCount());
  member.device->download(codes.data(), step.codes, codes.size());
  member.device->download(reinterpret_cast<char*>(scales.data()), step.scales, scales.size() * sizeof(float));
  const auto type = static_cast<DataType>(step.quantised);
  for (size_t token = 0; token < step.tokens; ++token) {
    const float* const values = normalised.data() + token * step.hidden;
    float scale = kTensorScale;
    if (step.scaling == strettoScalePerToken) {
      float largest = 0;
      for (size_t i = 0; i < step.hidden; ++i) largest = std::max(largest, std::fabs(values[i]));
      scale = std::max(largest / largestOf(type), kLeastScale / largestOf(type));
    }
    const float got = scales[step.scaling == strettoScalePerToken ? token : 0];
    if (got != scale) {
      member.complain("%zu x %zu: the scale of token %zu is %.9g and not %.9g", step.tokens, step.hidden,
                      token, static_cast<double>(got), static_cast<double>(scale));
      return false;
    }
    const float inverse = 1.0f / scale;
    for (size_t i = 0; i < step.hidden; ++i) {
      const auto code = static_cast<uint8_t>(codes[token * step.hidden + i]);
      const uint32_t wanted = encode(formatOf(type), static_cast<double>(values[i] * inverse));
      if (code == wanted) continue;
      member.complain("%zu x %zu: token %zu, element %zu: %g by %g is 0x%02x and not 0x%02x", step.tokens,
                      step.hidden, token, i, static_cast<double>(values[i]), static_cast<double>(scale), code,
                      wanted);
      return false;
    }
  }
  return true;
}

// After so many calls.
bool isRight(Member& member, const Step& step, int calls) {
  std::vector<float> residual(step.count()), normalised(step.count());
  member.device->download(reinterpret_cast<char*>(residual.data()), step.residual, step.bytes());
  member.device->download(reinterpret_cast<char*>(normalised.data()), step.normalised, step.bytes());
  for (size_t token = 0; token < step.tokens; ++token) {
    const size_t begin = token * step.hidden;
    double squares = 0;
    for (size_t i = begin; i < begin + step.hidden; ++i) {
      if (residual[i] != static_cast<float>(calls) * sumOfInputs(member.ranks(), i)) {
        member.complain("%zu x %zu: residual[%zu] is %g after %d calls of %g", step.tokens, step.hidden, i,
                        static_cast<double>(residual[i]), calls,
                        static_cast<double>(sumOfInputs(member.ranks(), i)));
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
  return codesAreRight(member, step, normalised);
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
