// The floating-point formats narrower than 32 bits, as facts: field widths, the NaN Stretto writes, and the
// value above which a conversion from fp32 stops. Plain constants without code, so that the level files of
// reduce (compiled with different target flags) may all read them.
//
// Conversions from fp32 round to nearest, ties to even. fp16 and bf16 overflow to infinity, as IEEE 754 has
// it. Both 8-bit formats saturate to their largest finite value, infinities included, which is what CUDA's
// own conversions (__NV_SATFINITE) and therefore NCCL do; NaN stays NaN. float8e4m3 is the "fn" variant of
// the OCP 8-bit specification: no infinities, one NaN pattern per sign.
#pragma once

#include <cstdint>

namespace stretto::numeric {

struct Float16 {
  static constexpr int kExponentBits = 5;
  static constexpr int kMantissaBits = 10;
  static constexpr uint32_t kNan = 0x7e00;
  static constexpr float kCeiling = 65536.0f;  // encodes as infinity
};

struct Bfloat16 {
  static constexpr uint32_t kNan = 0x7fc0;
};

struct Float8e4m3 {
  static constexpr int kExponentBits = 4;
  static constexpr int kMantissaBits = 3;
  static constexpr uint32_t kNan = 0x7f;
  static constexpr float kCeiling = 448.0f;
};

struct Float8e5m2 {
  static constexpr int kExponentBits = 5;
  static constexpr int kMantissaBits = 2;
  static constexpr uint32_t kNan = 0x7e;
  static constexpr float kCeiling = 57344.0f;
};

inline constexpr uint32_t kFloat32Nan = 0x7fc00000;
inline constexpr uint64_t kFloat64Nan = 0x7ff8000000000000;

}  // namespace stretto::numeric
