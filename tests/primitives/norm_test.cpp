// The norm of one token on every CPU level: the same bits, whatever the hidden size, the offsets and what is
// not a number.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "harness/oracle.hpp"
#include "primitives/host/norm.hpp"
#include "primitives/host/reduce.hpp"
#include "primitives/level_guard.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr const char* kLevels[] = {"scalar", "avx2", "avx512", "neon"};

struct Results {
  std::vector<char> added, normalised, quantised;
  std::vector<float> scales;
  bool operator==(const Results&) const = default;
};

Results run(DataType type, DataType quantised, size_t hidden, int sources) {
  Random random(hidden);
  const size_t bytes = hidden * sizeOf(type);
  std::vector<std::vector<char>> inputs(static_cast<size_t>(sources) + 2, std::vector<char>(bytes + 8));
  const std::byte* at[8];
  for (size_t i = 0; i < inputs.size(); ++i) {
    fillRandom(type, inputs[i].data() + sizeOf(type), hidden, random);
    at[i] = reinterpret_cast<const std::byte*>(inputs[i].data()) + sizeOf(type);
  }
  Results results{std::vector<char>(bytes), std::vector<char>(bytes), std::vector<char>(hidden), {0}};
  NormArguments norm{};
  norm.hidden = hidden;
  norm.residual = at[sources];
  norm.gamma = at[sources + 1];
  norm.residualOut = reinterpret_cast<std::byte*>(results.added.data());
  norm.normalised = reinterpret_cast<std::byte*>(results.normalised.data());
  norm.quantised = reinterpret_cast<std::byte*>(results.quantised.data());
  results.scales.resize(1);
  norm.scales = results.scales.data();
  norm.epsilon = 1e-6f;
  norm.scaling = Scaling::kPerToken;
  norm.quantisedType = quantised;
  Arguments arguments;
  arguments.elementBytes = sizeOf(type);
  arguments.reduce.type = type;
  arguments.norm = &norm;
  addNorm(arguments, {0, 1, at, sources, nullptr, 0});
  // NaN differs from itself.
  if (results.scales[0] != results.scales[0]) results.scales[0] = -1;
  return results;
}

TEST(NormLevels, HaveTheSameBits) {
  const LevelGuard guard;
  int levels = 0;
  for (const char* level : kLevels) {
    setenv("STRETTO_CPU", level, 1);
    if (!selectCpuLevel().ok()) continue;
    ++levels;
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
      for (const DataType quantised : {DataType::kFloat8e4m3, DataType::kFloat8e5m2}) {
        for (const size_t hidden : {1, 2, 7, 15, 16, 31, 63, 64, 65, 127, 129, 1000, 4096}) {
          const int sources = static_cast<int>(hidden % 5) + 1;
          setenv("STRETTO_CPU", kLevels[0], 1);
          ASSERT_TRUE(selectCpuLevel().ok() || levels == 1);
          const Results wanted = run(type, quantised, hidden, sources);
          setenv("STRETTO_CPU", level, 1);
          ASSERT_TRUE(selectCpuLevel().ok());
          EXPECT_EQ(run(type, quantised, hidden, sources), wanted)
              << level << " " << nameOf(type) << " to " << nameOf(quantised) << ", hidden " << hidden;
        }
      }
    }
  }
  EXPECT_GT(levels, 0);
}

}  // namespace
}  // namespace stretto
