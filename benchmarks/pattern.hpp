// Deterministic inputs and the check of results. An element's value depends on its rank and on its index, so
// that a block from the wrong rank, at the wrong place or reduced twice is seen; values are small whole
// numbers chosen so that every reduction over all ranks is exact in the element type, whatever the order of
// additions. Included by driver.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "request.hpp"

namespace stretto::bench {

// Prime, so that no power-of-two chunk or block boundary falls on the same place of two periods.
inline constexpr size_t kPeriod = 1021;

// A floating type of up to 16 bits from a value that is 0 or normal in it, rounded to nearest even. Every one
// of these types has the same layout: sign, exponent with bias 2^(bits-1)-1, mantissa.
inline uint32_t encodeSmallFloat(double value, const TypeFacts& type) {
  if (value == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // 0.5 <= mantissa < 1
  const double scaled = std::nearbyint(std::ldexp(mantissa, type.mantissaBits + 1));
  const int bias = (1 << (type.exponentBits - 1)) - 1;
  // A carry out of the mantissa lands in the exponent, where it belongs.
  return (static_cast<uint32_t>(exponent - 2 + bias) << type.mantissaBits) + static_cast<uint32_t>(scaled);
}

inline double decodeSmallFloat(uint32_t bits, const TypeFacts& type) {
  const uint32_t mantissaMask = (1u << type.mantissaBits) - 1;
  const int exponent = static_cast<int>((bits >> type.mantissaBits) & ((1u << type.exponentBits) - 1));
  const int bias = (1 << (type.exponentBits - 1)) - 1;
  const bool normal = exponent != 0;
  const double mantissa = (bits & mantissaMask) + (normal ? mantissaMask + 1.0 : 0.0);
  return std::ldexp(mantissa, std::max(exponent, 1) - bias - type.mantissaBits);
}

template <class T>
void storeAs(double value, std::byte* to) {
  const T converted = static_cast<T>(value);
  memcpy(to, &converted, sizeof converted);
}

template <class T>
double loadAs(const std::byte* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

inline void storeElement(Type type, double value, std::byte* to) {
  const TypeFacts& facts = kTypes[static_cast<int>(type)];
  switch (type) {
    case Type::kInt8:
    case Type::kUint8:
      return storeAs<uint8_t>(value, to);
    case Type::kInt32:
    case Type::kUint32:
      return storeAs<uint32_t>(value, to);
    case Type::kInt64:
    case Type::kUint64:
      return storeAs<uint64_t>(value, to);
    case Type::kFloat32:
      return storeAs<float>(value, to);
    case Type::kFloat64:
      return storeAs<double>(value, to);
    case Type::kFloat16:
    case Type::kBfloat16:
      return storeAs<uint16_t>(encodeSmallFloat(value, facts), to);
    case Type::kE4m3:
    case Type::kE5m2:
      return storeAs<uint8_t>(encodeSmallFloat(value, facts), to);
  }
}

// Only floating types come here: integers are compared bit by bit.
inline double loadFloat(Type type, const std::byte* from) {
  if (type == Type::kFloat32) return loadAs<float>(from);
  if (type == Type::kFloat64) return loadAs<double>(from);
  const TypeFacts& facts = kTypes[static_cast<int>(type)];
  const uint32_t bits = facts.bytes == 2 ? static_cast<uint32_t>(loadAs<uint16_t>(from))
                                         : static_cast<uint32_t>(loadAs<uint8_t>(from));
  return decodeSmallFloat(bits, facts);
}

class Pattern {
 public:
  Pattern(Type type, Operator op, int ranks) : type_(type), op_(op), ranks_(ranks) {}

  // `count` elements of `rank`'s input, from index 0; those of the reduction where that is kReduced.
  void fill(void* buffer, size_t count, int rank) const {
    const std::vector<std::byte> table = tableOf(rank);
    auto* to = static_cast<std::byte*>(buffer);
    for (size_t i = 0; i < count; i += kPeriod) {
      memcpy(to + i * bytes(), table.data(), std::min(kPeriod, count - i) * bytes());
    }
  }

  // How many of the block's elements in `buffer` are not what they must be.
  size_t countWrong(const void* buffer, const Block& block) const {
    const std::vector<std::byte> table = tableOf(block.source);
    const auto* got = static_cast<const std::byte*>(buffer);
    size_t wrong = 0;
    for (size_t i = 0; i < block.count;) {
      const size_t at = (block.first + i) % kPeriod;
      const size_t run = std::min(kPeriod - at, block.count - i);
      const std::byte* want = table.data() + at * bytes();
      if (memcmp(got + i * bytes(), want, run * bytes()) != 0)
        wrong += differing(got + i * bytes(), want, run);
      i += run;
    }
    return wrong;
  }

 private:
  size_t bytes() const { return kTypes[static_cast<int>(type_)].bytes; }

  static uint32_t hashOf(size_t index) {
    uint32_t h = (static_cast<uint32_t>(index) + 1) * 2654435761u;
    h = (h ^ (h >> 15)) * 2246822519u;
    return h ^ (h >> 13);
  }

  double value(int rank, size_t index) const {
    const auto turn =
        static_cast<int>((hashOf(index) + static_cast<uint32_t>(rank)) % static_cast<uint32_t>(ranks_));
    const double exact = kTypes[static_cast<int>(type_)].largestExact;
    if (op_ == Operator::kProd) return turn < 6 ? 2 : 1;
    const bool adds = op_ == Operator::kSum || op_ == Operator::kAvg;
    const double limit = std::min(63.0, std::floor(adds ? exact / ranks_ : exact));
    // More ranks than the type can count: only as many of them as it can hold add a 1.
    if (limit < 1) return turn < exact ? 1 : 0;
    const uint32_t mixed = hashOf(index * 64 + static_cast<size_t>(rank));
    return mixed % (static_cast<uint32_t>(limit) + 1);
  }

  double reduced(size_t index) const {
    double result = value(0, index);
    for (int rank = 1; rank < ranks_; ++rank) {
      const double next = value(rank, index);
      if (op_ == Operator::kProd) result *= next;
      if (op_ == Operator::kMax) result = std::max(result, next);
      if (op_ == Operator::kMin) result = std::min(result, next);
      if (op_ == Operator::kSum || op_ == Operator::kAvg) result += next;
    }
    return op_ == Operator::kAvg ? result / ranks_ : result;
  }

  std::vector<std::byte> tableOf(int source) const {
    std::vector<std::byte> table(kPeriod * bytes());
    for (size_t i = 0; i < kPeriod; ++i) {
      storeElement(type_, source == kReduced ? reduced(i) : value(source, i), table.data() + i * bytes());
    }
    return table;
  }

  size_t differing(const std::byte* got, const std::byte* want, size_t count) const {
    // Only an average can be inexact: dividing and multiplying by 1/n may differ in the last place.
    const bool inexact = op_ == Operator::kAvg && kTypes[static_cast<int>(type_)].exponentBits != 0;
    const double tolerance = std::ldexp(1.0, -kTypes[static_cast<int>(type_)].mantissaBits);
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i, got += bytes(), want += bytes()) {
      if (memcmp(got, want, bytes()) == 0) continue;
      const double expected = inexact ? loadFloat(type_, want) : 0;
      if (inexact && std::fabs(loadFloat(type_, got) - expected) <= expected * tolerance) continue;
      ++wrong;
    }
    return wrong;
  }

  Type type_;
  Operator op_;
  int ranks_;
};

}  // namespace stretto::bench
