// How vectors of accumulators are added, multiplied, compared and divided: integers that wrap, and floats.
// For the level files only.
#pragma once

#include <type_traits>

#include "base/types.hpp"
#include "primitives/host/reduce_vector.hpp"

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

template <typename T>
struct FloatArithmetic {
  using Value = Vector<T>;

  STRETTO_VECTOR_INLINE static Value add(Value a, Value b) { return a + b; }
  STRETTO_VECTOR_INLINE static Value multiply(Value a, Value b) { return a * b; }
  STRETTO_VECTOR_INLINE static Value larger(Value a, Value b) { return maximum(a, b); }
  STRETTO_VECTOR_INLINE static Value lesser(Value a, Value b) { return minimum(a, b); }

  // For a power of two, multiplying by the reciprocal is exact in the same way and many times faster.
  class Divider {
   public:
    explicit Divider(uint32_t divisor)
        : exact_((divisor & (divisor - 1)) == 0),
          factor_(splat<Value>(exact_ ? T(1) / static_cast<T>(divisor) : static_cast<T>(divisor))) {}
    STRETTO_VECTOR_INLINE Value operator()(Value value) const {
      return exact_ ? value * factor_ : value / factor_;
    }

   private:
    bool exact_;
    Value factor_;
  };
};

// Quotients of unsigned lanes by a divisor fixed beforehand, through a multiplication with its reciprocal:
// SIMD has no integer division.
template <int kBytes>
class UnsignedDivider;

template <>
class UnsignedDivider<1> {
 public:
  // With x < 2^8 and factor = ceil(2^16 / d), (x * factor) >> 16 is exact for 2 <= d <= 2^8; any larger d
  // gives 0, as 2^8 does.
  explicit UnsignedDivider(uint32_t divisor) {
    const uint32_t bounded = divisor < 256 ? divisor : 256;
    const uint32_t factor = divisor == 1 ? 0 : (65536 + bounded - 1) / bounded;
    one_ = divisor == 1;
    high_ = splat<Words16>(static_cast<uint16_t>(factor >> 8));
    low_ = splat<Words16>(static_cast<uint16_t>(factor & 0xff));
  }
  STRETTO_VECTOR_INLINE Bytes operator()(Bytes value) const {
    if (one_) return value;
    const Words16 pairs = as<Words16>(value);
    return as<Bytes>(quotient(pairs & 0xff) | (quotient(pairs >> 8) << 8));
  }

 private:
  // (x * factor) >> 16 without a product wider than 16 bits.
  STRETTO_VECTOR_INLINE Words16 quotient(Words16 x) const { return (x * high_ + ((x * low_) >> 8)) >> 8; }

  bool one_;
  Words16 high_;
  Words16 low_;
};

// Both below: with factor = floor((2^n - 1) / d), the high half of x * factor is the quotient or one less.
template <>
class UnsignedDivider<4> {
 public:
  explicit UnsignedDivider(uint32_t divisor)
      : factor_(splat<Words64>(uint64_t{0xffffffff / divisor})), divisor_(splat<Words32>(divisor)) {}
  STRETTO_VECTOR_INLINE Words32 operator()(Words32 value) const {
    const Words64 pairs = as<Words64>(value);
    const Words64 even = multiplyWide(pairs, factor_) >> 32;
    const Words64 odd = multiplyWide(pairs >> 32, factor_) & 0xffffffff00000000;
    const Words32 quotient = as<Words32>(even | odd);
    const Words32 rest = value - quotient * divisor_;
    return quotient - as<Words32>(rest >= divisor_);  // true is -1
  }

 private:
  Words64 factor_;
  Words32 divisor_;
};

template <>
class UnsignedDivider<8> {
 public:
  explicit UnsignedDivider(uint32_t divisor)
      : factorLow_(splat<Words64>((~uint64_t{0} / divisor) & 0xffffffff)),
        factorHigh_(splat<Words64>((~uint64_t{0} / divisor) >> 32)),
        divisor_(splat<Words64>(uint64_t{divisor})) {}
  STRETTO_VECTOR_INLINE Words64 operator()(Words64 value) const {
    const Words64 quotient = highProduct(value);
    const Words64 product = multiplyWide(quotient, divisor_) + (multiplyWide(quotient >> 32, divisor_) << 32);
    const auto rest = as<Vector<int64_t>>(value - product);  // below 2 * 2^32, so the signed compare serves
    return quotient - as<Words64>(rest >= as<Vector<int64_t>>(divisor_));
  }

 private:
  STRETTO_VECTOR_INLINE Words64 highProduct(Words64 value) const {
    const Words64 high = value >> 32;
    const Words64 lowLow = multiplyWide(value, factorLow_);
    const Words64 highLow = multiplyWide(high, factorLow_) + (lowLow >> 32);
    const Words64 lowHigh = multiplyWide(value, factorHigh_) + (highLow & 0xffffffff);
    return multiplyWide(high, factorHigh_) + (highLow >> 32) + (lowHigh >> 32);
  }

  Words64 factorLow_;
  Words64 factorHigh_;
  Words64 divisor_;
};

// Values are kept unsigned, where overflow is defined to wrap; T's sign matters to order and division.
template <typename T>
struct IntegerArithmetic {
  using Value = Vector<std::make_unsigned_t<T>>;
  using Ordered = Vector<T>;

  STRETTO_VECTOR_INLINE static Value add(Value a, Value b) { return a + b; }
  STRETTO_VECTOR_INLINE static Value multiply(Value a, Value b) { return a * b; }
  STRETTO_VECTOR_INLINE static Value larger(Value a, Value b) {
    return as<Value>(greater(as<Ordered>(a), as<Ordered>(b)));
  }
  STRETTO_VECTOR_INLINE static Value lesser(Value a, Value b) {
    return as<Value>(smaller(as<Ordered>(a), as<Ordered>(b)));
  }

  // Truncates toward zero: divides the magnitude, then restores the sign.
  class Divider {
   public:
    explicit Divider(uint32_t divisor) : magnitude_(divisor) {}
    STRETTO_VECTOR_INLINE Value operator()(Value value) const {
      if constexpr (std::is_signed_v<T>) {
        const Value negative = as<Value>(as<Ordered>(value) < Ordered{});  // all ones where so
        return (magnitude_((value ^ negative) - negative) ^ negative) - negative;
      } else {
        return magnitude_(value);
      }
    }

   private:
    UnsignedDivider<sizeof(T)> magnitude_;
  };
};

template <typename Arithmetic, Operator op>
STRETTO_VECTOR_INLINE typename Arithmetic::Value combine(typename Arithmetic::Value a,
                                                         typename Arithmetic::Value b) {
  if constexpr (op == Operator::kProd) return Arithmetic::multiply(a, b);
  if constexpr (op == Operator::kMax) return Arithmetic::larger(a, b);
  if constexpr (op == Operator::kMin) return Arithmetic::lesser(a, b);
  return Arithmetic::add(a, b);
}

}  // namespace
}  // namespace stretto
