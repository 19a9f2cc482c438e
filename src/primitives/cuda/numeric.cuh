// Floating-point arithmetic and conversions with the bits of the Host backend (primitives/host/reduce.hpp
// says which), one or two elements at a time. For reducer.cuh alone.
//
// Device code uses the hardware's conversions where they exist; they round and saturate alike but leave other
// NaNs behind, which is mended here. namespace portable holds the same functions in plain arithmetic: for the
// CPU, for GPUs without the instruction, and for tests to compare with.
//
// No operation may be contracted or flushed: device code names the rounding of every one, and refuses to be
// compiled for flush-to-zero.
#pragma once

#include "primitives/cuda/unit.cuh"
#include "primitives/numeric.hpp"

#if defined(__CUDA_FTZ) || defined(__FAST_MATH__)
#error \
    "reductions promise subnormals and correctly rounded quotients: compile without -ftz=true, --use_fast_math"
#endif

#if defined(__CUDA_ARCH__)
#define STRETTO_ON_DEVICE(here, elsewhere) here
#else
#define STRETTO_ON_DEVICE(here, elsewhere) elsewhere
#endif

namespace stretto::cuda {

// ---- Arithmetic -------------------------------------------------------------------------------------------

STRETTO_BOTH float add(float a, float b) {
  return STRETTO_ON_DEVICE(__fadd_rn(a, b), a + b);
}
STRETTO_BOTH double add(double a, double b) {
  return STRETTO_ON_DEVICE(__dadd_rn(a, b), a + b);
}
STRETTO_BOTH float multiply(float a, float b) {
  return STRETTO_ON_DEVICE(__fmul_rn(a, b), a * b);
}
STRETTO_BOTH double multiply(double a, double b) {
  return STRETTO_ON_DEVICE(__dmul_rn(a, b), a * b);
}
STRETTO_BOTH float divide(float a, float b) {
  return STRETTO_ON_DEVICE(__fdiv_rn(a, b), a / b);
}
STRETTO_BOTH double divide(double a, double b) {
  return STRETTO_ON_DEVICE(__ddiv_rn(a, b), a / b);
}
STRETTO_BOTH float squareRoot(float a) {
  return STRETTO_ON_DEVICE(__fsqrt_rn(a), __builtin_sqrtf(a));
}

// IEEE 754-2019 maximum and minimum: -0 < +0, NaN if either is NaN. Equal operands differ in a zero's sign at
// most: `and` keeps a + there, `or` a -.
STRETTO_BOTH double larger(double a, double b) {
  if (a != a || b != b) return a != a ? a : b;
  if (a == b) return as<double>(as<uint64_t>(a) & as<uint64_t>(b));
  return a > b ? a : b;
}
STRETTO_BOTH double lesser(double a, double b) {
  if (a != a || b != b) return a != a ? a : b;
  if (a == b) return as<double>(as<uint64_t>(a) | as<uint64_t>(b));
  return a < b ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
STRETTO_BOTH float larger(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
STRETTO_BOTH float lesser(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
#else
STRETTO_BOTH float larger(float a, float b) {
  return static_cast<float>(larger(static_cast<double>(a), static_cast<double>(b)));
}
STRETTO_BOTH float lesser(float a, float b) {
  return static_cast<float>(lesser(static_cast<double>(a), static_cast<double>(b)));
}
#endif

// The payload an operation leaves in a NaN differs between processors; this one is stored.
STRETTO_BOTH float canonical(float value) {
  return value != value ? as<float>(numeric::kFloat32Nan) : value;
}
STRETTO_BOTH double canonical(double value) {
  return value != value ? as<double>(numeric::kFloat64Nan) : value;
}

// ---- Conversions ------------------------------------------------------------------------------------------

// Two elements in fp32. Packed, `low` is in the lower half of 32 bits (16-bit formats) or 16 (8-bit formats).
struct Pair {
  float low;
  float high;
};

namespace portable {

// One element of a format narrower than fp32. Moved to fp32's mantissa it is 2^rebias too small, special
// values apart.
template <typename Format>
STRETTO_BOTH float decode(uint32_t bits) {
  constexpr int kWidth = 1 + Format::kExponentBits + Format::kMantissaBits;
  constexpr int kShift = 23 - Format::kMantissaBits;
  constexpr uint32_t kMagnitude = (1u << (kWidth - 1)) - 1;
  constexpr uint32_t kBias = (1u << (Format::kExponentBits - 1)) - 1;
  constexpr bool kInfinities = Format::kNan != kMagnitude;
  constexpr uint32_t kSpecial =
      kInfinities ? ((1u << Format::kExponentBits) - 1) << Format::kMantissaBits : Format::kNan;
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t sign = (bits >> (kWidth - 1) & 1) << 31;
  const float scaled = multiply(as<float>(magnitude << kShift), as<float>((254 - kBias) << 23));
  const uint32_t special = 0x7f800000u | magnitude << kShift;
  return as<float>((magnitude >= kSpecial ? special : as<uint32_t>(scaled)) | sign);
}

// Nearest even, subnormals included, NaN to Format::kNan. Adding `shifter`, whose last bit weighs as much as
// the result's last bit, makes the adder round: the sum's low bits are then the mantissa with its hidden bit,
// and its exponent field, moved next to them, is the result's but for a constant.
template <typename Format>
STRETTO_BOTH uint32_t encode(float value) {
  constexpr int kDropped = 23 - Format::kMantissaBits;
  constexpr int kSignShift = 31 - Format::kExponentBits - Format::kMantissaBits;
  constexpr uint32_t kMagnitude = 0x7fffffffu >> kSignShift;
  constexpr uint32_t kBias = (1u << (Format::kExponentBits - 1)) - 1;
  constexpr uint32_t kSmallestNormal = (128 - kBias) << 23;
  constexpr uint32_t kShift = uint32_t{kDropped} << 23;
  const uint32_t bits = as<uint32_t>(value);
  const float whole = as<float>(bits & 0x7fffffffu);
  const float magnitude = Format::kCeiling < whole ? Format::kCeiling : whole;
  const uint32_t power = as<uint32_t>(magnitude) & 0x7f800000u;
  const uint32_t scale = power > kSmallestNormal ? power : kSmallestNormal;
  const uint32_t sum = as<uint32_t>(add(magnitude, as<float>(scale + kShift))) - (kSmallestNormal + kShift);
  const uint32_t code = sum + (sum >> kDropped);
  const uint32_t sign = (bits >> 31) * (kMagnitude + 1);
  return value != value ? Format::kNan : (code & kMagnitude) | sign;
}

// A bf16 is the upper half of an fp32.
template <>
STRETTO_BOTH float decode<numeric::Bfloat16>(uint32_t bits) {
  return as<float>(bits << 16);
}
template <>
STRETTO_BOTH uint32_t encode<numeric::Bfloat16>(float value) {
  const uint32_t bits = as<uint32_t>(canonical(value));
  return (bits + ((bits >> 16) & 1u) + 0x7fffu) >> 16;
}

}  // namespace portable

template <typename Format>
inline constexpr int kBitsOf = 1 + Format::kExponentBits + Format::kMantissaBits;
template <>
inline constexpr int kBitsOf<numeric::Bfloat16> = 16;

template <typename Format>
STRETTO_BOTH Pair decodePair(uint32_t bits) {
  constexpr uint32_t kMask = (1u << kBitsOf<Format>)-1;
  return {portable::decode<Format>(bits & kMask), portable::decode<Format>(bits >> kBitsOf<Format>)};
}
template <typename Format>
STRETTO_BOTH uint32_t encodePair(Pair values) {
  return portable::encode<Format>(values.low) | portable::encode<Format>(values.high) << kBitsOf<Format>;
}

// The odd element of a bf16 pair is where it belongs already.
template <>
STRETTO_BOTH Pair decodePair<numeric::Bfloat16>(uint32_t bits) {
  return {as<float>(bits << 16), as<float>(bits & 0xffff0000u)};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
STRETTO_BOTH Pair decodePair<numeric::Float16>(uint32_t bits) {
  Pair values;
  asm("{ .reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high; }"
      : "=f"(values.low), "=f"(values.high)
      : "r"(bits));
  return values;
}

// Chosen where `nan` has ones: the NaN that Stretto writes instead of the hardware's.
STRETTO_BOTH uint32_t mended(uint32_t bits, uint32_t nan, uint32_t ours) {
  return (bits & ~nan) | (ours & nan);
}
template <>
STRETTO_BOTH uint32_t encodePair<numeric::Float16>(Pair values) {
  uint32_t bits, nan;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(values.high), "f"(values.low));
  asm("set.nan.u32.f16x2 %0, %1, %1;" : "=r"(nan) : "r"(bits));
  return mended(bits, nan, numeric::Float16::kNan * 0x10001u);
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <>
STRETTO_BOTH uint32_t encodePair<numeric::Bfloat16>(Pair values) {
  uint32_t bits, nan;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(values.high), "f"(values.low));
  asm("set.nan.u32.bf16x2 %0, %1, %1;" : "=r"(nan) : "r"(bits));
  return mended(bits, nan, numeric::Bfloat16::kNan * 0x10001u);
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
template <>
STRETTO_BOTH Pair decodePair<numeric::Float8e4m3>(uint32_t bits) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bits)));
  return decodePair<numeric::Float16>(halves);
}
template <>
STRETTO_BOTH Pair decodePair<numeric::Float8e5m2>(uint32_t bits) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bits)));
  return decodePair<numeric::Float16>(halves);
}

// Finite results end `kBelowNan` short of the sign bit: adding that tells the NaNs among two bytes.
template <uint32_t kBelowNan>
STRETTO_BOTH uint32_t nanBytes(uint32_t bits) {
  return ((((bits & 0x7f7fu) + kBelowNan * 0x101u) & 0x8080u) >> 7) * 0xffu;
}
template <>
STRETTO_BOTH uint32_t encodePair<numeric::Float8e4m3>(Pair values) {
  uint16_t bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(values.high), "f"(values.low));
  return mended(bits, nanBytes<0x80 - 0x7f>(bits), numeric::Float8e4m3::kNan * 0x101u);
}
template <>
STRETTO_BOTH uint32_t encodePair<numeric::Float8e5m2>(Pair values) {
  uint16_t bits;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(values.high), "f"(values.low));
  return mended(bits, nanBytes<0x80 - 0x7c>(bits), numeric::Float8e5m2::kNan * 0x101u);
}
#endif

}  // namespace stretto::cuda

#undef STRETTO_ON_DEVICE
