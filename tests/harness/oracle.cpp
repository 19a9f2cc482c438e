#include "harness/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stretto::testing {

Format formatOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {5, 10, true, false, 0x7e00};
    case DataType::kBfloat16:
      return {8, 7, true, false, 0x7fc0};
    case DataType::kFloat8e4m3:
      return {4, 3, false, true, 0x7f};
    default:
      return {5, 2, true, true, 0x7e};
  }
}

bool isNarrow(DataType type) {
  return std::find(std::begin(kNarrowFloats), std::end(kNarrowFloats), type) != std::end(kNarrowFloats);
}
bool isFloating(DataType type) {
  return isNarrow(type) || type == DataType::kFloat32 || type == DataType::kFloat64;
}

double decode(const Format& format, uint32_t bits) {
  const int mantissa = static_cast<int>(bits & ((1u << format.mantissaBits) - 1));
  const int exponent = static_cast<int>(bits >> format.mantissaBits) & ((1 << format.exponentBits) - 1);
  const int allOnes = (1 << format.exponentBits) - 1;
  const double sign = (bits & format.signBit()) != 0 ? -1.0 : 1.0;
  if (format.infinities && exponent == allOnes) return mantissa == 0 ? sign * INFINITY : NAN;
  if (!format.infinities && (bits & ~format.signBit()) == format.nan) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissaBits);
  return sign *
         std::ldexp(mantissa + (1 << format.mantissaBits), exponent - format.bias() - format.mantissaBits);
}

uint32_t encode(const Format& format, double value) {
  if (std::isnan(value)) return format.nan;
  const uint32_t sign = std::signbit(value) ? format.signBit() : 0;
  const uint32_t infinity = ((1u << format.exponentBits) - 1) << format.mantissaBits;
  const uint32_t largest = format.infinities ? infinity - 1 : format.nan - 1;
  const uint32_t overflow = format.saturates ? largest : infinity;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | overflow;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias());
  const double quotient = std::nearbyint(std::ldexp(magnitude, format.mantissaBits - exponent));
  const double biased = std::ldexp(exponent + format.bias() - 1, format.mantissaBits);
  const double code = biased + quotient;  // a quotient that reached the next power carries by itself
  return sign | (code > largest ? overflow : static_cast<uint32_t>(code));
}

namespace {

template <typename T>
T floatStep(Operator op, T a, T b) {
  if (op == Operator::kProd) return a * b;
  if (op == Operator::kSum || op == Operator::kAvg) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return (op == Operator::kMax) == std::signbit(a) ? b : a;
  return (a > b) == (op == Operator::kMax) ? a : b;
}

template <typename T>
T integerStep(Operator op, T a, T b) {
  using Wide = unsigned __int128;
  if (op == Operator::kProd) return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  if (op == Operator::kMax) return a < b ? b : a;
  if (op == Operator::kMin) return b < a ? b : a;
  return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
}

template <typename T, typename Step>
T folded(const std::vector<const void*>& sources, size_t i, Step step) {
  T result = at<T>(sources[0], i);
  for (size_t s = 1; s < sources.size(); ++s) result = step(result, at<T>(sources[s], i));
  return result;
}

template <typename T>
T expectInteger(const ReduceSpec& spec, const std::vector<const void*>& sources, size_t i) {
  const T sum = folded<T>(sources, i, [&](T a, T b) { return integerStep(spec.op, a, b); });
  if (spec.op != Operator::kAvg) return sum;
  return static_cast<T>(static_cast<__int128>(sum) / spec.divisor);
}

bool isPlainCopy(const ReduceSpec& spec, size_t sources) {
  return sources == 1 && (spec.op != Operator::kAvg || spec.divisor == 1);
}

template <typename T, typename Bits>
T expectFloat(const ReduceSpec& spec, const std::vector<const void*>& sources, size_t i, Bits nan) {
  T result = folded<T>(sources, i, [&](T a, T b) { return floatStep(spec.op, a, b); });
  if (spec.op == Operator::kAvg) result /= static_cast<T>(spec.divisor);
  if (std::isnan(result)) memcpy(&result, &nan, sizeof nan);
  return result;
}

// Every pattern's value, decoded once.
const std::vector<float>& valuesOf(DataType type) {
  static const auto kAll = [] {
    std::vector<std::vector<float>> all(kDataTypes);
    for (const DataType narrow : kNarrowFloats) {
      const uint32_t patterns = sizeOf(narrow) == 1 ? 256 : 65536;
      auto& values = all[static_cast<size_t>(narrow)];
      for (uint32_t bits = 0; bits < patterns; ++bits) {
        values.push_back(static_cast<float>(decode(formatOf(narrow), bits)));
      }
    }
    return all;
  }();
  return kAll[static_cast<size_t>(type)];
}

template <typename Bits>
Bits expectNarrow(const ReduceSpec& spec, const std::vector<const void*>& sources, size_t i) {
  const std::vector<float>& values = valuesOf(spec.type);
  float result = values[at<Bits>(sources[0], i)];
  for (size_t s = 1; s < sources.size(); ++s) {
    result = floatStep(spec.op, result, values[at<Bits>(sources[s], i)]);
  }
  if (spec.op == Operator::kAvg) result /= static_cast<float>(spec.divisor);
  return static_cast<Bits>(encode(formatOf(spec.type), result));
}

template <typename T, typename Expected>
std::vector<char> expectAll(size_t count, Expected expected) {
  std::vector<char> bytes(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const T value = expected(i);
    memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

}  // namespace

std::vector<char> oracle(const ReduceSpec& spec, const std::vector<const void*>& sources, size_t count) {
  if (isPlainCopy(spec, sources.size())) {
    const char* only = static_cast<const char*>(sources[0]);
    return {only, only + count * sizeOf(spec.type)};
  }
  const auto integer = [&]<typename T>(T) {
    return expectAll<T>(count, [&](size_t i) { return expectInteger<T>(spec, sources, i); });
  };
  switch (spec.type) {
    case DataType::kInt8:
      return integer(int8_t{});
    case DataType::kUint8:
      return integer(uint8_t{});
    case DataType::kInt32:
      return integer(int32_t{});
    case DataType::kUint32:
      return integer(uint32_t{});
    case DataType::kInt64:
      return integer(int64_t{});
    case DataType::kUint64:
      return integer(uint64_t{});
    case DataType::kFloat32:
      return expectAll<float>(
          count, [&](size_t i) { return expectFloat<float>(spec, sources, i, uint32_t{0x7fc00000}); });
    case DataType::kFloat64:
      return expectAll<double>(count, [&](size_t i) {
        return expectFloat<double>(spec, sources, i, uint64_t{0x7ff8000000000000});
      });
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return expectAll<uint16_t>(count, [&](size_t i) { return expectNarrow<uint16_t>(spec, sources, i); });
    default:
      return expectAll<uint8_t>(count, [&](size_t i) { return expectNarrow<uint8_t>(spec, sources, i); });
  }
}

double valueAt(DataType type, const void* array, size_t i) {
  switch (type) {
    case DataType::kInt8:
      return at<int8_t>(array, i);
    case DataType::kUint8:
      return at<uint8_t>(array, i);
    case DataType::kInt32:
      return at<int32_t>(array, i);
    case DataType::kUint32:
      return at<uint32_t>(array, i);
    case DataType::kInt64:
      return static_cast<double>(at<int64_t>(array, i));
    case DataType::kUint64:
      return static_cast<double>(at<uint64_t>(array, i));
    case DataType::kFloat32:
      return at<float>(array, i);
    case DataType::kFloat64:
      return at<double>(array, i);
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return decode(formatOf(type), at<uint16_t>(array, i));
    default:
      return decode(formatOf(type), at<uint8_t>(array, i));
  }
}

void putFloat(DataType type, void* array, size_t i, double value) {
  if (type == DataType::kFloat64) return put(array, i, value);
  if (type == DataType::kFloat32) return put(array, i, static_cast<float>(value));
  const uint32_t bits = encode(formatOf(type), value);
  sizeOf(type) == 2 ? put(array, i, static_cast<uint16_t>(bits)) : put(array, i, static_cast<uint8_t>(bits));
}

void fillRandom(DataType type, void* array, size_t count, Random& random) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    memcpy(static_cast<char*>(array) + i * sizeOf(type), &bits, sizeOf(type));
    if (!isFloating(type) || i % 4 == 1) continue;
    const double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, 1.0, -1e-42, 3e-5, 0.0, -0.0, NAN};
    const double ordinary = static_cast<double>(static_cast<int64_t>(bits)) / 0x1p61;
    putFloat(type, array, i, i % 11 == 3 ? kSpecial[bits % 10] : ordinary);
  }
}

}  // namespace stretto::testing
