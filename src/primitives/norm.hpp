// What of an all-reduce with residual add and RMSNorm is the same wherever ranks are: which types it has, and
// how tokens are told of. Plain C++.
#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace stretto {

// Types that tokens may have.
constexpr bool hasNorm(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}
// Types that the 8-bit copy may have, and their largest number.
constexpr bool isQuantised(DataType type) {
  return type == DataType::kFloat8e4m3 || type == DataType::kFloat8e5m2;
}
constexpr float largestOf(DataType quantised) {
  return quantised == DataType::kFloat8e4m3 ? 448.0f : 57344.0f;
}
// A token's scale is at least this much of 1 / largestOf(): a token of zeros has one too.
inline constexpr float kLeastScale = 1.0f / 512;

// Tokens one after the other, by their number.
struct TokenRun {
  size_t first;
  size_t many;
};

// Tokens `first` to `first + many` of the operation. The sources begin with the first of them; the sums go to
// `pushedCount` places as well, which begin there too.
struct NormTokens {
  size_t first;
  size_t many;
  const std::byte* const* sources;
  int sourceCount;
  std::byte* const* pushed;
  int pushedCount;
};

}  // namespace stretto
