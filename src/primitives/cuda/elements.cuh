// What a unit holds, per DataType: how many elements, in what they accumulate, how they are combined, divided
// and stored. One step below reducer.cuh, which alone includes this.
#pragma once

#include <type_traits>

#include "primitives/cuda/numeric.cuh"
#include "primitives/operation.hpp"

namespace stretto::cuda {

// Accumulators of one unit; after unrolling, registers.
template <typename T, int kNumber>
struct Values {
  static constexpr int kCount = kNumber;
  T value[kNumber];
};

// ---- Floats -----------------------------------------------------------------------------------------------

template <typename T>
struct FloatArithmetic {
  using Value = T;
  STRETTO_BOTH static T sum(T a, T b) { return add(a, b); }
  STRETTO_BOTH static T product(T a, T b) { return multiply(a, b); }
  STRETTO_BOTH static T maximum(T a, T b) { return larger(a, b); }
  STRETTO_BOTH static T minimum(T a, T b) { return lesser(a, b); }
  STRETTO_BOTH static T quotient(T value, uint32_t divisor) { return divide(value, static_cast<T>(divisor)); }
};

template <typename Format>
struct NarrowElements {
  using Arithmetic = FloatArithmetic<float>;
  static constexpr int kBits = kBitsOf<Format>;
  using Accumulators = Values<float, 64 / kBits>;

  STRETTO_BOTH static Accumulators decode(Unit unit) {
    constexpr uint32_t kMask = kBits == 16 ? 0xffffffffu : 0xffffu;
    Accumulators to;
    STRETTO_UNROLL
    for (int i = 0; i < Accumulators::kCount; i += 2) {
      const Pair pair = decodePair<Format>(static_cast<uint32_t>(unit >> (i * kBits)) & kMask);
      to.value[i] = pair.low;
      to.value[i + 1] = pair.high;
    }
    return to;
  }
  STRETTO_BOTH static Unit encode(const Accumulators& from) {
    Unit unit = 0;
    STRETTO_UNROLL
    for (int i = 0; i < Accumulators::kCount; i += 2) {
      unit |= Unit{encodePair<Format>({from.value[i], from.value[i + 1]})} << (i * kBits);
    }
    return unit;
  }
};

// ---- Integers ---------------------------------------------------------------------------------------------

// Accumulators are unsigned, where overflow is defined to wrap, and at least 32 bits: what overflows a byte
// stays above it until it is stored, unless order or division asks for the true value.
template <typename T>
struct IntegerArithmetic {
  using Value = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  using Ordered = std::conditional_t<std::is_signed_v<T>, std::make_signed_t<Value>, Value>;

  STRETTO_BOTH static Value sum(Value a, Value b) { return a + b; }
  STRETTO_BOTH static Value product(Value a, Value b) { return a * b; }
  STRETTO_BOTH static Value maximum(Value a, Value b) { return ordered(a) > ordered(b) ? a : b; }
  STRETTO_BOTH static Value minimum(Value a, Value b) { return ordered(a) < ordered(b) ? a : b; }

  // Toward zero: the magnitude is divided, then the sign restored.
  STRETTO_BOTH static Value quotient(Value value, uint32_t divisor) {
    const Ordered wrapped = static_cast<T>(value);
    if constexpr (std::is_signed_v<T>) {
      const Value negative = wrapped < 0 ? ~Value{0} : Value{0};
      const Value magnitude = (static_cast<Value>(wrapped) ^ negative) - negative;
      return ((magnitude / divisor) ^ negative) - negative;
    } else {
      return wrapped / divisor;
    }
  }

 private:
  // Of operands that are elements, not sums.
  STRETTO_BOTH static Ordered ordered(Value value) { return static_cast<Ordered>(value); }
};

// Integers, fp32 and fp64.
template <typename T>
struct PlainElements {
  static constexpr bool kFloating = std::is_floating_point_v<T>;
  using Arithmetic = std::conditional_t<kFloating, FloatArithmetic<T>, IntegerArithmetic<T>>;
  using Value = typename Arithmetic::Value;
  using Accumulators = Values<Value, 8 / sizeof(T)>;
  using Bits =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint8_t>>;

  STRETTO_BOTH static Accumulators decode(Unit unit) {
    Accumulators to;
    STRETTO_UNROLL
    for (int i = 0; i < Accumulators::kCount; ++i) {
      to.value[i] = static_cast<Value>(as<T>(static_cast<Bits>(unit >> (8 * sizeof(T) * i))));
    }
    return to;
  }
  STRETTO_BOTH static Unit encode(const Accumulators& from) {
    Unit unit = 0;
    STRETTO_UNROLL
    for (int i = 0; i < Accumulators::kCount; ++i) {
      unit |= Unit{bitsOf(from.value[i])} << (8 * sizeof(T) * i);
    }
    return unit;
  }

 private:
  STRETTO_BOTH static Bits bitsOf(Value value) {
    if constexpr (kFloating) return as<Bits>(canonical(value));
    return static_cast<Bits>(value);
  }
};

// ---- All of them ------------------------------------------------------------------------------------------

// clang-format off
template <DataType type> struct ElementsOf;
template <> struct ElementsOf<DataType::kInt8> : PlainElements<int8_t> {};
template <> struct ElementsOf<DataType::kUint8> : PlainElements<uint8_t> {};
template <> struct ElementsOf<DataType::kInt32> : PlainElements<int32_t> {};
template <> struct ElementsOf<DataType::kUint32> : PlainElements<uint32_t> {};
template <> struct ElementsOf<DataType::kInt64> : PlainElements<int64_t> {};
template <> struct ElementsOf<DataType::kUint64> : PlainElements<uint64_t> {};
template <> struct ElementsOf<DataType::kFloat16> : NarrowElements<numeric::Float16> {};
template <> struct ElementsOf<DataType::kFloat32> : PlainElements<float> {};
template <> struct ElementsOf<DataType::kFloat64> : PlainElements<double> {};
template <> struct ElementsOf<DataType::kBfloat16> : NarrowElements<numeric::Bfloat16> {};
template <> struct ElementsOf<DataType::kFloat8e4m3> : NarrowElements<numeric::Float8e4m3> {};
template <> struct ElementsOf<DataType::kFloat8e5m2> : NarrowElements<numeric::Float8e5m2> {};
// clang-format on

// Calls visitor(ElementsOf<type>{}).
template <typename Visitor>
STRETTO_BOTH auto withElements(DataType type, Visitor visitor) {
  switch (type) {
    case DataType::kInt8:
      return visitor(ElementsOf<DataType::kInt8>{});
    case DataType::kUint8:
      return visitor(ElementsOf<DataType::kUint8>{});
    case DataType::kInt32:
      return visitor(ElementsOf<DataType::kInt32>{});
    case DataType::kUint32:
      return visitor(ElementsOf<DataType::kUint32>{});
    case DataType::kInt64:
      return visitor(ElementsOf<DataType::kInt64>{});
    case DataType::kUint64:
      return visitor(ElementsOf<DataType::kUint64>{});
    case DataType::kFloat16:
      return visitor(ElementsOf<DataType::kFloat16>{});
    case DataType::kFloat32:
      return visitor(ElementsOf<DataType::kFloat32>{});
    case DataType::kFloat64:
      return visitor(ElementsOf<DataType::kFloat64>{});
    case DataType::kBfloat16:
      return visitor(ElementsOf<DataType::kBfloat16>{});
    case DataType::kFloat8e4m3:
      return visitor(ElementsOf<DataType::kFloat8e4m3>{});
    default:
      return visitor(ElementsOf<DataType::kFloat8e5m2>{});
  }
}

// result.value[i] = combine(a.value[i], b.value[i])
template <typename Accumulators, typename Combine>
STRETTO_BOTH Accumulators eachOf(const Accumulators& a, const Accumulators& b, Combine combine) {
  Accumulators result;
  STRETTO_UNROLL
  for (int i = 0; i < Accumulators::kCount; ++i) result.value[i] = combine(a.value[i], b.value[i]);
  return result;
}

// kAvg adds. The branch is outside of the loops: one for all elements.
template <typename Elements, typename Accumulators = typename Elements::Accumulators>
STRETTO_BOTH Accumulators combined(Operator op, const Accumulators& a, const Accumulators& b) {
  using Arithmetic = typename Elements::Arithmetic;
  using Value = typename Arithmetic::Value;
  switch (op) {
    case Operator::kProd:
      return eachOf(a, b, [](Value x, Value y) { return Arithmetic::product(x, y); });
    case Operator::kMax:
      return eachOf(a, b, [](Value x, Value y) { return Arithmetic::maximum(x, y); });
    case Operator::kMin:
      return eachOf(a, b, [](Value x, Value y) { return Arithmetic::minimum(x, y); });
    default:
      return eachOf(a, b, [](Value x, Value y) { return Arithmetic::sum(x, y); });
  }
}

// Each element divided.
template <typename Elements, typename Accumulators = typename Elements::Accumulators>
STRETTO_BOTH Accumulators quotients(const Accumulators& from, uint32_t divisor) {
  Accumulators result;
  STRETTO_UNROLL
  for (int i = 0; i < Accumulators::kCount; ++i) {
    result.value[i] = Elements::Arithmetic::quotient(from.value[i], divisor);
  }
  return result;
}

}  // namespace stretto::cuda
