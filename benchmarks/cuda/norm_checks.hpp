// What norm_driver gives to its steps and expects of them: numbers that are the same wherever they are made,
// exact results, and the bits of other ways. On the host.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "norm_call.hpp"

namespace stretto::bench {

inline constexpr int kInputs = 4;  // that steps take in turns
inline constexpr float kEpsilon = 1e-6f;
inline constexpr float kTensorScale = 1.0f / 64;

inline uint16_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline double valueOf(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return static_cast<double>(value);
}

// Of float8e4m3.
inline double valueOfCode(uint8_t code) {
  static const std::array<double, 256> all = [] {
    std::array<double, 256> values{};
    for (int each = 0; each < 256; ++each) {
      const int exponent = each >> 3 & 15, mantissa = each & 7;
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      values[static_cast<size_t>(each)] = (each & 0x80) != 0 ? -magnitude : magnitude;
    }
    return values;
  }();
  return all[code];
}

// Numbers between -2 and 2, the same wherever they are made.
inline std::vector<uint16_t> numbers(size_t count, uint64_t seed) {
  std::vector<uint16_t> all(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint16_t& each : all) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    each = bitsOf(static_cast<float>(static_cast<int>(state >> 33) % 4001) / 1000 - 2);
  }
  return all;
}

// What a call leaves, as far as it is wanted.
struct Results {
  std::vector<uint16_t> residual, normalised, reduced;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

// Of one number of tokens and hidden size. What is not as it should be is a Failure. Used by one thread.
class NormChecks {
 public:
  NormChecks(const Call& call, int ranks, int tokens, int hidden)
      : call_(call),
        ranks_(ranks),
        tokens_(static_cast<size_t>(tokens)),
        hidden_(static_cast<size_t>(hidden)),
        start_(numbers(count(), 1)),
        gamma_(numbers(hidden_, 2)),
        bias_(numbers(hidden_, 3)) {}

  std::vector<uint16_t> input(int rank, int which) const {
    return numbers(count(), static_cast<uint64_t>(100 + rank * kInputs + which));
  }
  const std::vector<uint16_t>& start() const { return start_; }
  const std::vector<uint16_t>& gamma() const { return gamma_; }
  const std::vector<uint16_t>& bias() const { return bias_; }

  // In all bits.
  void same(const char* way, const Results& got, const Results& wanted) const {
    sameSums(way, got, wanted);
    expectSame(way, "normalised", got.normalised, wanted.normalised);
    expectSame(way, "codes", got.codes, wanted.codes);
    expectSame(way, "scales", got.scales, wanted.scales);
  }
  void sameSums(const char* way, const Results& got, const Results& wanted) const {
    expectSame(way, "residual", got.residual, wanted.residual);
    expectSame(way, "reduced", got.reduced, wanted.reduced);
  }
  // The sums of an input against exact ones: alone, or `added` to the residual that there was.
  void sums(const char* way, const std::vector<uint16_t>& got, int which, bool added) const {
    const std::vector<float>& exactSums = sumsOf(which);
    constexpr double kUnit = 1.0 / 256;
    for (size_t i = 0; i < count(); ++i) {
      const auto sum = static_cast<double>(exactSums[i]);
      const double bias = call_.hasBias ? valueOf(bias_[i % hidden_]) : 0;
      const double exact = added ? sum + valueOf(start_[i]) + bias : sum;
      const double bound = 1.01 * kUnit * (std::fabs(sum) + std::fabs(exact)) + 1e-5;
      expectNear(way, added ? "residual" : "sum", i, valueOf(got[i]), exact, bound);
    }
  }
  // Of the residual as it is. An 8-bit code is within half a unit of its last place, and the rounding of the
  // normalised element before it.
  void norm(const char* way, const Results& results) const {
    const size_t hidden = hidden_;
    for (size_t token = 0; token < tokens_; ++token) {
      double squares = 0, largest = 0;
      const auto residual = [&](size_t i) { return valueOf(results.residual[token * hidden + i]); };
      for (size_t i = 0; i < hidden; ++i) squares += residual(i) * residual(i);
      const double factor =
          1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(kEpsilon));
      const auto exact = [&](size_t i) { return residual(i) * factor * valueOf(gamma_[i]); };
      if (call_.scaling == strettoScalePerToken) {
        for (size_t i = 0; i < hidden; ++i) largest = std::max(largest, std::fabs(exact(i)));
      }
      double scale = kTensorScale;
      if (call_.scaling == strettoScalePerToken) {
        scale = std::max(largest, 1.0 / 512) / 448;
        expectNear(way, "scale", token, static_cast<double>(results.scales[token]), scale, scale / 200);
      }
      for (size_t i = 0; i < hidden; ++i) {
        const size_t at = token * hidden + i;
        const double wanted = exact(i), bound = std::fabs(wanted) / 250 + 1e-30;
        if (call_.wantsNormalised)
          expectNear(way, "normalised", at, valueOf(results.normalised[at]), wanted, bound);
        if (call_.scaling == strettoScaleNone) continue;
        const double most = 448 * scale, kept = std::clamp(wanted, -most, most);
        expectNear(way, "codes", at, valueOfCode(results.codes[at]) * scale, kept,
                   std::fabs(kept) / 13 + scale / 512);
      }
    }
  }

 private:
  size_t count() const { return tokens_ * hidden_; }
  // Exact up to 8 ranks: these numbers are multiples of 2^-17, and their sum stays below 2^5, so it has 22
  // bits.
  const std::vector<float>& sumsOf(int which) const {
    std::vector<float>& sums = sums_[static_cast<size_t>(which)];
    if (!sums.empty()) return sums;
    sums.resize(count());
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<uint16_t> one = input(rank, which);
      for (size_t i = 0; i < count(); ++i) sums[i] += static_cast<float>(valueOf(one[i]));
    }
    return sums;
  }
  std::string where(const char* way) const {
    return std::string(way) + ", " + std::to_string(tokens_) + " x " + std::to_string(hidden_) + ": ";
  }
  template <typename T>
  void expectSame(const char* way, const char* what, const std::vector<T>& got,
                  const std::vector<T>& wanted) const {
    if (got.size() == wanted.size() && std::memcmp(got.data(), wanted.data(), sizeof(T) * got.size()) == 0)
      return;
    size_t others = 0, first = got.size();
    for (size_t i = got.size(); i-- > 0;) {
      if (i < wanted.size() && std::memcmp(&got[i], &wanted[i], sizeof(T)) == 0) continue;
      ++others;
      first = i;
    }
    throw Failure(where(way) + what + " has other bits than by another way, in " + std::to_string(others) +
                  " of " + std::to_string(got.size()) + " places, the first of them " +
                  std::to_string(first));
  }
  void expectNear(const char* way, const char* what, size_t at, double got, double exact,
                  double bound) const {
    if (std::fabs(got - exact) <= bound) return;
    throw Failure(where(way) + what + "[" + std::to_string(at) + "] is " + std::to_string(got) + " and not " +
                  std::to_string(exact));
  }

  const Call call_;
  const int ranks_;
  const size_t tokens_, hidden_;
  const std::vector<uint16_t> start_, gamma_, bias_;
  mutable std::array<std::vector<float>, kInputs> sums_;  // by input, of all ranks, once they were asked for
};

}  // namespace stretto::bench
