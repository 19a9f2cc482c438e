// The small vocabulary every layer shares: element types, reduction operators, collective names.
// Plain values without behaviour beyond size and name; any folder may include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/names.hpp"

namespace stretto {

// Numeric values are those of ncclDataType_t, so the API layer converts by a cast (checked there).
enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
inline constexpr int kDataTypes = 12;
static_assert(hasValues<DataType, kDataTypes>());

// Numeric values are those of ncclRedOp_t. PreMulSum is a handle there and a scaling pass here: the
// executor multiplies the input first and then runs kSum.
enum class Operator : uint8_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
inline constexpr int kOperators = 5;
static_assert(hasValues<Operator, kOperators>());

enum class Collective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllReduceAddRmsNorm,
  kSend,
  kReceive,
  // One-sided: in no table and in no user's choice, so not among kCollectives.
  kPut,
  kSignal,
  kWaitSignal,
};
inline constexpr int kCollectives = 11;
inline constexpr int kCalls = 14;
static_assert(hasValues<Collective, kCalls>());

constexpr bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce || collective == Collective::kAllReduceAddRmsNorm;
}

// How many blocks of `count` elements a buffer has, of the rank that has the most (the root, if there is
// one): one for each rank, or one.
constexpr size_t blocksSent(Collective collective, int ranks) {
  const bool one = collective != Collective::kReduceScatter && collective != Collective::kAllToAll &&
                   collective != Collective::kScatter;
  return one ? 1 : static_cast<size_t>(ranks);
}
constexpr size_t blocksReceived(Collective collective, int ranks) {
  const bool one = collective != Collective::kAllGather && collective != Collective::kAllToAll &&
                   collective != Collective::kGather;
  return one ? 1 : static_cast<size_t>(ranks);
}

// Shifts, not a table: a constexpr array of a function is built on the stack by each call that a compiler
// does not see through, and one outside of it does not exist on a GPU.
constexpr size_t sizeOf(DataType type) {
  constexpr uint32_t kLogarithms = 0b00'00'01'11'10'01'11'11'10'10'00'00;  // two bits a type, kInt8 lowest
  return size_t{1} << (kLogarithms >> (2 * static_cast<unsigned>(type)) & 3);
}

namespace internal {
inline constexpr const char* kTypeNames[] = {"int8",    "uint8",    "int32",      "uint32",
                                             "int64",   "uint64",   "float16",    "float32",
                                             "float64", "bfloat16", "float8e4m3", "float8e5m2"};
inline constexpr const char* kOperatorNames[] = {"sum", "prod", "max", "min", "avg"};
inline constexpr const char* kCollectiveNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                                   "all_to_all", "broadcast",      "reduce",
                                                   "gather",     "scatter",        "all_reduce_add_rms_norm",
                                                   "send",       "receive",        "put_signal",
                                                   "signal",     "wait_signal"};
}  // namespace internal

// Names as users type them: "bfloat16", "sum", "all_reduce". Never null for a valid value.
constexpr const char* nameOf(DataType type) {
  return nameIn(internal::kTypeNames, type);
}
constexpr const char* nameOf(Operator op) {
  return nameIn(internal::kOperatorNames, op);
}
constexpr const char* nameOf(Collective collective) {
  return nameIn(internal::kCollectiveNames, collective);
}

}  // namespace stretto
