// How each DataType travels between memory and accumulators. A codec turns one vector of memory into kParts
// vectors of accumulators and back: one for 32- and 64-bit elements and all integers, two for 16-bit floats,
// four for 8-bit floats (which accumulate in fp32). A part's lanes may be any fixed permutation of the
// elements, as long as decode and encode agree. encode also replaces every NaN by the canonical one, because
// the payload an operation leaves behind differs between instruction sets and operand orders.
// For the level files only.
#pragma once

#include "primitives/host/reduce_arithmetic.hpp"
#include "primitives/numeric.hpp"

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

template <typename Arithmetic, int kParts>
struct Accumulators {
  typename Arithmetic::Value part[kParts];
};

STRETTO_VECTOR_INLINE Floats canonical(Floats value) {
  return value != value ? as<Floats>(splat<Words32>(numeric::kFloat32Nan)) : value;
}
STRETTO_VECTOR_INLINE Doubles canonical(Doubles value) {
  return value != value ? as<Doubles>(splat<Words64>(numeric::kFloat64Nan)) : value;
}

// fp32 to a narrower Format, nearest even, subnormals included, the same on every level. Adding `shifter`,
// whose last bit weighs as much as the result's last bit, makes the adder round: the sum's low bits are then
// the mantissa with its hidden bit, and its exponent field, moved next to them, is the result's but for a
// constant.
template <typename Format>
STRETTO_VECTOR_INLINE Words32 encodeFloats(Floats value) {
  constexpr int kDropped = 23 - Format::kMantissaBits;
  constexpr int kSignShift = 31 - Format::kExponentBits - Format::kMantissaBits;
  constexpr uint32_t kMagnitudeMask = 0x7fffffffu >> kSignShift;
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  constexpr uint32_t kShift = uint32_t{kDropped} << 23;
  const Words32 bits = as<Words32>(value);
  const Floats magnitude = smaller(splat<Floats>(Format::kCeiling), as<Floats>(bits & 0x7fffffffu));
  const Floats scale =
      greater(as<Floats>(as<Words32>(magnitude) & 0x7f800000u), as<Floats>(splat<Words32>(kSmallestNormal)));
  const Floats shifter = as<Floats>(as<Words32>(scale) + kShift);
  const Words32 sum = as<Words32>(magnitude + shifter) - (kSmallestNormal + kShift);
  const Words32 code = sum + (sum >> kDropped);
  const Words32 withSign = (code & kMagnitudeMask) | ((bits >> kSignShift) & ~kMagnitudeMask);
  return value != value ? splat<Words32>(Format::kNan) : withSign;
}

#if !defined(STRETTO_HARDWARE_HALF)
// fp16 to fp32. The subnormals get their value by subtracting the hidden bit again, in normal arithmetic:
// no multiplication ever sees a denormal, so no flush mode matters.
STRETTO_VECTOR_INLINE Floats decodeHalves(Words32 half) {
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  constexpr uint32_t kOne = 1u << 23;
  const Words32 magnitude = (half & 0x7fffu) << 13;
  const Words32 sign = (half & 0x8000u) << 16;
  const Words32 special = as<Words32>(as<Vector<int32_t>>(magnitude) >= int32_t{31 << 23});
  const Words32 normal = magnitude + kRebias + (special & kRebias);
  const Floats subnormal =
      as<Floats>(magnitude + (kRebias + kOne)) - as<Floats>(splat<Words32>(kRebias + kOne));
  const Words32 small = as<Words32>(as<Vector<int32_t>>(magnitude) < int32_t{kOne});
  return as<Floats>((small ? as<Words32>(subnormal) : normal) | sign);
}

STRETTO_VECTOR_INLINE void widenHalves(Words16 halves, Floats& first, Floats& second) {
  Words32 low, high;
  widenWords(halves, low, high);
  first = decodeHalves(low);
  second = decodeHalves(high);
}
STRETTO_VECTOR_INLINE Words16 narrowToHalves(Floats first, Floats second) {
  return packWords(encodeFloats<numeric::Float16>(first), encodeFloats<numeric::Float16>(second));
}
#endif

template <typename T>
struct PlainCodec {
  using Element = T;
  static constexpr bool kFloating = std::is_floating_point_v<T>;
  using Arithmetic = std::conditional_t<kFloating, FloatArithmetic<T>, IntegerArithmetic<T>>;
  static constexpr int kParts = 1;
  using Parts = Accumulators<Arithmetic, kParts>;

  static constexpr int position(int /*part*/, int lane) { return lane; }
  STRETTO_VECTOR_INLINE static Parts decode(Bytes memory) {
    return {{as<typename Arithmetic::Value>(memory)}};
  }
  STRETTO_VECTOR_INLINE static Bytes encode(const Parts& parts) {
    if constexpr (kFloating) return as<Bytes>(canonical(parts.part[0]));
    return as<Bytes>(parts.part[0]);
  }
  STRETTO_VECTOR_INLINE static Parts roundTrip(const Parts& parts) { return decode(encode(parts)); }
};

// A bf16 is the upper half of an fp32: even elements are shifted up, odd ones are where they belong.
struct Bfloat16Codec {
  using Element = uint16_t;
  using Arithmetic = FloatArithmetic<float>;
  static constexpr int kParts = 2;
  using Parts = Accumulators<Arithmetic, kParts>;

  static constexpr int position(int part, int lane) { return 2 * lane + part; }
  STRETTO_VECTOR_INLINE static Parts decode(Bytes memory) {
    const Words32 pairs = as<Words32>(memory);
    return {{as<Floats>(pairs << 16), as<Floats>(pairs & 0xffff0000u)}};
  }
  STRETTO_VECTOR_INLINE static Bytes encode(const Parts& parts) {
    return as<Bytes>((rounded(parts.part[0]) >> 16) | (rounded(parts.part[1]) & 0xffff0000u));
  }
  // As encoded and decoded again, but that a NaN may be another one: its lower half is 0, as all NaN come
  // from elements or from the processor, so that no carry makes it a number.
  STRETTO_VECTOR_INLINE static Parts roundTrip(const Parts& parts) {
    return {{upper(as<Words32>(parts.part[0])), upper(as<Words32>(parts.part[1]))}};
  }

 private:
  // Nearest even in the upper half; a canonical NaN stays what it is.
  STRETTO_VECTOR_INLINE static Words32 rounded(Words32 bits) { return bits + ((bits >> 16) & 1u) + 0x7fffu; }
  STRETTO_VECTOR_INLINE static Words32 rounded(Floats value) {
    return rounded(as<Words32>(canonical(value)));
  }
  STRETTO_VECTOR_INLINE static Floats upper(Words32 bits) { return as<Floats>(rounded(bits) & 0xffff0000u); }
};

struct Float16Codec {
  using Element = uint16_t;
  using Arithmetic = FloatArithmetic<float>;
  static constexpr int kParts = 2;
  using Parts = Accumulators<Arithmetic, kParts>;

  static constexpr int position(int part, int lane) { return part * (kWidth / 4) + lane; }
  STRETTO_VECTOR_INLINE static Parts decode(Bytes memory) {
    Parts parts;
    widenHalves(as<Words16>(memory), parts.part[0], parts.part[1]);
    return parts;
  }
  STRETTO_VECTOR_INLINE static Bytes encode(const Parts& parts) {
    return as<Bytes>(narrowToHalves(canonical(parts.part[0]), canonical(parts.part[1])));
  }
  STRETTO_VECTOR_INLINE static Parts roundTrip(const Parts& parts) { return decode(encode(parts)); }
};

// Both 8-bit formats are read by way of fp16, which every level but the x86 baseline widens by hardware.
template <typename Format>
struct Float8Codec {
  using Element = uint8_t;
  using Arithmetic = FloatArithmetic<float>;
  static constexpr int kParts = 4;
  using Parts = Accumulators<Arithmetic, kParts>;
  static constexpr bool kIsHalfPrefix = Format::kExponentBits == 5;

  STRETTO_VECTOR_INLINE static Parts decode(Bytes memory) {
    Words16 first, second;
    widenBytes(memory, first, second);
    Parts parts;
    widenHalves(asHalves(first), parts.part[0], parts.part[1]);
    widenHalves(asHalves(second), parts.part[2], parts.part[3]);
    if constexpr (!kIsHalfPrefix) {  // undo the difference of the biases: exact
      for (Floats& part : parts.part) part *= 256.0f;
    }
    return parts;
  }
  STRETTO_VECTOR_INLINE static Bytes encode(const Parts& parts) {
    return packBytes(encodeFloats<Format>(parts.part[0]), encodeFloats<Format>(parts.part[1]),
                     encodeFloats<Format>(parts.part[2]), encodeFloats<Format>(parts.part[3]));
  }

 private:
  // e5m2 is the upper byte of an fp16. e4m3, moved to the same mantissa position, is an fp16 that is 2^8
  // too small, except for its NaN, which would read as a number there.
  STRETTO_VECTOR_INLINE static Words16 asHalves(Words16 signExtended) {
    if constexpr (kIsHalfPrefix) return signExtended << 8;
    const auto isNan = (signExtended & uint16_t{0x7f}) == uint16_t{0x7f};
    const Words16 half = (signExtended << 7) & uint16_t{0xbfff};
    return isNan ? splat<Words16>(uint16_t{numeric::Float16::kNan}) : half;
  }
};

}  // namespace
}  // namespace stretto
