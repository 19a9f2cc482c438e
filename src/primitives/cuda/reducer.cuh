// Reducers: how kernels combine units of the ranks, in rank order, with the bits of the Host backend (the
// rules are in primitives/host/reduce.hpp). For the verbs of the Cuda backend and for kernels.
//
//   const Reducer reducer(spec);
//   auto sum = reducer.start(first);
//   reducer.join(sum, second);  // ... as many as there are
//   const Unit result = reducer.finish(sum);
//
// One source alone, with nothing to divide, is not a reduction: it is copied as it is, NaN payloads included,
// where finish() would make them canonical. Lanes beyond the data may hold anything.
//
// FixedReducer serves what models compute in and inlines completely; kindOf() (reducer_kind.hpp) says when.
// AnyReducer serves every type and operator from three functions per kernel that branch by type.
#pragma once

#include "primitives/cuda/elements.cuh"
#include "primitives/cuda/reducer_kind.hpp"

namespace stretto::cuda {

// Sums and averages; both by one reducer, so op is kSum always and spec.op says which.
template <DataType type, Operator op>
class FixedReducer {
  static_assert(op == Operator::kSum && isFixed(type, op), "the reducer that serves this is AnyReducer");

 public:
  using Elements = ElementsOf<type>;
  using Accumulator = typename Elements::Accumulators;
  static constexpr size_t kElementBytes = sizeOf(type);

  // Dividing by a power of two is multiplying by its reciprocal, exact in the same way; a sum's is 1. The
  // reciprocal is the power with its exponent negated.
  STRETTO_BOTH explicit FixedReducer(const ReduceSpec& spec) {
    const uint32_t divisor = spec.op == Operator::kAvg ? spec.divisor : 1;
    divides_ = (divisor & (divisor - 1)) != 0;
    const float whole = static_cast<float>(divisor);
    factor_ = divides_ ? whole : as<float>(kTwiceBias - as<uint32_t>(whole));
  }

  // Of so many ranks, a power of two, whose average needs no division: the kernel is shorter by that.
  template <int kRanks>
  struct Among {
    static_assert(kRanks > 0 && (kRanks & (kRanks - 1)) == 0);
  };
  template <int kRanks>
  STRETTO_BOTH FixedReducer(const ReduceSpec& spec, Among<kRanks>)
      : factor_(spec.op == Operator::kAvg ? 1.0f / kRanks : 1.0f), divides_(false) {}

  STRETTO_BOTH Accumulator start(Unit first) const { return Elements::decode(first); }

  STRETTO_BOTH void join(Accumulator& sum, Unit next) const {
    sum = combined<Elements>(Operator::kSum, sum, Elements::decode(next));
  }

  STRETTO_BOTH Unit finish(const Accumulator& sum) const {
    const Accumulator factors = everywhere(factor_);
    return Elements::encode(divides_ ? eachOf(sum, factors, [](float a, float b) { return divide(a, b); })
                                     : eachOf(sum, factors, [](float a, float b) { return multiply(a, b); }));
  }
  // Of a sum, which nothing divides: compilers keep a multiplication by 1.
  STRETTO_BOTH static Unit finishSum(const Accumulator& sum) { return Elements::encode(sum); }

 private:
  static constexpr uint32_t kTwiceBias = 254u << 23;

  STRETTO_BOTH static Accumulator everywhere(float value) {
    Accumulator all;
    STRETTO_UNROLL
    for (int i = 0; i < Accumulator::kCount; ++i) all.value[i] = value;
    return all;
  }

  float factor_;
  bool divides_;
};

// What AnyReducer accumulates in: a word for each element, or two for the one element of 64 bits.
struct AnyAccumulator {
  uint32_t word[8];
};

template <typename Accumulators>
STRETTO_BOTH AnyAccumulator packed(const Accumulators& from) {
  AnyAccumulator to = {};
  if constexpr (Accumulators::kCount == 1) {
    const uint64_t bits = as<uint64_t>(from.value[0]);
    to.word[0] = static_cast<uint32_t>(bits);
    to.word[1] = static_cast<uint32_t>(bits >> 32);
  } else {
    STRETTO_UNROLL
    for (int i = 0; i < Accumulators::kCount; ++i) to.word[i] = as<uint32_t>(from.value[i]);
  }
  return to;
}

template <typename Accumulators>
STRETTO_BOTH Accumulators unpacked(const AnyAccumulator& from) {
  using Value = std::decay_t<decltype(Accumulators{}.value[0])>;
  Accumulators to;
  if constexpr (Accumulators::kCount == 1) {
    to.value[0] = as<Value>(from.word[0] | uint64_t{from.word[1]} << 32);
  } else {
    STRETTO_UNROLL
    for (int i = 0; i < Accumulators::kCount; ++i) to.value[i] = as<Value>(from.word[i]);
  }
  return to;
}

STRETTO_BOTH_CALLED AnyAccumulator startAny(DataType type, Unit first) {
  return withElements(type, [=](auto elements) { return packed(decltype(elements)::decode(first)); });
}

STRETTO_BOTH_CALLED AnyAccumulator joinAny(DataType type, Operator op, AnyAccumulator sum, Unit next) {
  return withElements(type, [=](auto elements) {
    using Elements = decltype(elements);
    const auto before = unpacked<typename Elements::Accumulators>(sum);
    return packed(combined<Elements>(op, before, Elements::decode(next)));
  });
}

STRETTO_BOTH_CALLED Unit finishAny(DataType type, uint32_t divisor, AnyAccumulator sum) {
  return withElements(type, [=](auto elements) {
    using Elements = decltype(elements);
    const auto result = unpacked<typename Elements::Accumulators>(sum);
    return Elements::encode(divisor == 1 ? result : quotients<Elements>(result, divisor));
  });
}

class AnyReducer {
 public:
  using Accumulator = AnyAccumulator;
  static constexpr size_t kElementBytes = 0;

  STRETTO_BOTH explicit AnyReducer(const ReduceSpec& spec)
      : type_(spec.type), op_(spec.op), divisor_(spec.op == Operator::kAvg ? spec.divisor : 1) {}

  STRETTO_BOTH Accumulator start(Unit first) const { return startAny(type_, first); }
  STRETTO_BOTH void join(Accumulator& sum, Unit next) const { sum = joinAny(type_, op_, sum, next); }
  STRETTO_BOTH Unit finish(const Accumulator& sum) const { return finishAny(type_, divisor_, sum); }

 private:
  DataType type_;
  Operator op_;
  uint32_t divisor_;
};

// The size of every type, four bits each: device code would keep a table in memory, one copy per thread.
inline constexpr uint64_t kPackedSizes = [] {
  uint64_t sizes = 0;
  for (int type = 0; type < kDataTypes; ++type) {
    sizes |= uint64_t{sizeOf(static_cast<DataType>(type))} << (4 * type);
  }
  return sizes;
}();

// One element, at any alignment, in every lane.
STRETTO_BOTH Unit repeated(DataType type, const uint8_t scalar[8]) {
  Unit whole = 0;
  STRETTO_UNROLL
  for (int i = 0; i < 8; ++i) whole |= Unit{scalar[i]} << (8 * i);
  const uint64_t bytes = (kPackedSizes >> (4 * static_cast<int>(type))) & 15;
  if (bytes == 1) whole = (whole & 0xff) * 0x0101;
  if (bytes <= 2) whole = (whole & 0xffff) * 0x00010001;
  if (bytes <= 4) whole = (whole & 0xffffffff) * 0x100000001;
  return whole;
}

// PreMulSum's first step: every element times the scalar, as the Host backend's scale().
STRETTO_BOTH Unit scaled(DataType type, Unit unit, const uint8_t scalar[8]) {
  const AnyReducer product({type, Operator::kProd, 1});
  AnyReducer::Accumulator result = product.start(unit);
  product.join(result, repeated(type, scalar));
  return product.finish(result);
}

}  // namespace stretto::cuda
