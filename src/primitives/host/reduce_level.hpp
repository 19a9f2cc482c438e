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

// One token of an all-reduce with RMSNorm (norm.hpp), `bytes` long, in three passes of which the last two are
// over what the first has left in the nearest cache.
struct AddJob {
  std::byte* dst;  // the sum of the sources, rounded, and of the addends, rounded again
  std::byte* sum;  // the sum of the sources, rounded; or null
  const std::byte* const* sources;
  int sourceCount;
  const std::byte* addends[2];  // as many as are not null, in this order
  size_t bytes;
};
struct NormaliseJob {
  std::byte* dst;  // or null
  const std::byte* src;
  const std::byte* gamma;  // or null
  float factor;
  size_t bytes;
};
struct QuantiseJob {
  std::byte* dst;  // 8 bits an element
  NormaliseJob normalised;
  float inverse;  // what the result is multiplied by
};

struct CpuLevel {
  using Reduce = void (*)(const ReduceJob&);
  using Scale = void (*)(const ScaleJob&);
  // The sum of the squares of what went to dst.
  using AddSquares = float (*)(const AddJob&);
  using Normalise = void (*)(const NormaliseJob&);
  // The largest magnitude of what the same job of Normalise writes.
  using Largest = float (*)(const NormaliseJob&);
  using Quantise = void (*)(const QuantiseJob&);
  struct Norm {
    AddSquares addSquares;
    Normalise normalise;
    Largest largest;
    Quantise toE4m3;
    Quantise toE5m2;
  };
  using CopyStream = void (*)(std::byte* dst, const std::byte* src, size_t bytes);

  const char* name;
  Reduce reduce[kDataTypes][kOperators];
  Scale scale[kDataTypes];
  Norm norm[kDataTypes];  // of float32, float16 and bfloat16
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
