// The AVX2 level (with F16C); cmake/reduce_levels.cmake compiles this file for it. Empty elsewhere.
#if defined(__x86_64__)
#include "primitives/host/reduce_kernels.hpp"

#if !defined(__AVX2__) || !defined(__F16C__) || defined(__AVX512F__)
#error "reduce_avx2.cpp needs the flags of cmake/reduce_levels.cmake"
#endif

namespace stretto {

constinit const CpuLevel kLevelAvx2 = makeLevel("avx2");

}  // namespace stretto
#endif
