// What one CPU level offers: a table of functions compiled with that level's target flags. reduce.cpp and
// copy.cpp pick a table at run time; nobody else includes this.
//
// The level files (reduce_scalar.cpp, reduce_avx2.cpp, ...) must share no inline function with external
// linkage: the linker would keep one copy of it, perhaps the AVX-512 one, for every CPU. So all their code
// sits in unnamed namespaces, and this header declares data and types only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace stretto {

struct ReduceJob {
  std::byte* dst;
  std::byte* second;  // null: one destination
  const std::byte* const* sources;
  int sourceCount;
  uint32_t divisor;
  size_t bytes;  // of each array
  bool stream;
};

struct ScaleJob {
  std::byte* dst;
  const std::byte* src;
  const std::byte* scalar;
  size_t bytes;
};

struct CpuLevel {
  using Reduce = void (*)(const ReduceJob&);
  using Scale = void (*)(const ScaleJob&);
  using CopyStream = void (*)(std::byte* dst, const std::byte* src, size_t bytes);

  const char* name;
  Reduce reduce[kDataTypes][kOperators];
  Scale scale[kDataTypes];
  CopyStream copyStream;
};

extern const CpuLevel kLevelBaseline;
#if defined(__x86_64__)
extern const CpuLevel kLevelAvx2;
extern const CpuLevel kLevelAvx512;
#endif

// The level in use (reduce.cpp).
const CpuLevel& currentCpuLevel();

}  // namespace stretto
