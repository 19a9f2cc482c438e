// What operations must compute, written apart from the code under test: one element at a time, formats
// decoded by ldexp and encoded by rounding a quotient, in rank order, no vectors and no bit tricks shared
// with the library. For every test that needs an expected result, and for inputs that reach the odd cases.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/types.hpp"
#include "primitives/operation.hpp"

namespace stretto::testing {

inline constexpr DataType kTypes[] = {DataType::kInt8,     DataType::kUint8,      DataType::kInt32,
                                      DataType::kUint32,   DataType::kInt64,      DataType::kUint64,
                                      DataType::kFloat16,  DataType::kFloat32,    DataType::kFloat64,
                                      DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2};
inline constexpr DataType kNarrowFloats[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8e4m3,
                                             DataType::kFloat8e5m2};
using Random = std::mt19937_64;

// A floating point format of 8 or 16 bits.
struct Format {
  int exponentBits;
  int mantissaBits;
  bool infinities;  // has them, as IEEE 754
  bool saturates;   // on conversion from fp32
  uint32_t nan;

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
  uint32_t signBit() const { return 1u << (exponentBits + mantissaBits); }
};
// Of a narrow float only.
Format formatOf(DataType type);
bool isNarrow(DataType type);
bool isFloating(DataType type);

double decode(const Format& format, uint32_t bits);
// Nearest, ties to even, by the definition: the quotient by the last place is rounded to a whole number.
uint32_t encode(const Format& format, double value);

// Element i of an array that may lie at any address.
template <typename T>
T at(const void* array, size_t i) {
  T value;
  memcpy(&value, static_cast<const char*>(array) + i * sizeof value, sizeof value);
  return value;
}
template <typename T>
void put(void* array, size_t i, T value) {
  memcpy(static_cast<char*>(array) + i * sizeof value, &value, sizeof value);
}
// Any type's element as a double; of a floating type, rounded to it.
double valueAt(DataType type, const void* array, size_t i);
void putFloat(DataType type, void* array, size_t i, double value);

// `count` elements of the sources combined in their order.
std::vector<char> oracle(const ReduceSpec& spec, const std::vector<const void*>& sources, size_t count);

// Ordinary values mostly; every fourth column holds any bits at all, every eleventh signed zeros, infinities,
// NaN and subnormals.
void fillRandom(DataType type, void* array, size_t count, Random& random);

}  // namespace stretto::testing
