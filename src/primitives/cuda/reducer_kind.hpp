// Which compiled reducer serves a reduction: planners and executors pick a kernel by it, without any CUDA
// header. The reducers themselves are in reducer.cuh.
#pragma once

#include <cstdint>

#include "base/names.hpp"
#include "primitives/operation.hpp"

namespace stretto::cuda {

enum class ReducerKind : uint8_t { kFloat32, kFloat16, kBfloat16, kAny };
inline constexpr int kReducerKinds = 4;
static_assert(hasValues<ReducerKind, kReducerKinds>());

// True if a reducer of its own exists: sums and averages (one reducer serves both) of what models compute in.
constexpr bool isFixed(DataType type, Operator op) {
  const bool common = type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
  return common && (op == Operator::kSum || op == Operator::kAvg);
}

constexpr ReducerKind kindOf(const ReduceSpec& spec) {
  if (!isFixed(spec.type, spec.op)) return ReducerKind::kAny;
  if (spec.type == DataType::kFloat32) return ReducerKind::kFloat32;
  return spec.type == DataType::kFloat16 ? ReducerKind::kFloat16 : ReducerKind::kBfloat16;
}

constexpr const char* nameOf(ReducerKind kind) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16", "any"};
  return nameIn(kNames, kind);
}

}  // namespace stretto::cuda
