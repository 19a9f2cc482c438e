// The AVX-512 level (F, BW, DQ, VL); cmake/reduce_levels.cmake compiles this file for it. Empty elsewhere.
#if defined(__x86_64__)
#include "primitives/host/reduce_kernels.hpp"

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "reduce_avx512.cpp needs the flags of cmake/reduce_levels.cmake"
#endif

namespace stretto {

constinit const CpuLevel kLevelAvx512 = makeLevel("avx512");

}  // namespace stretto
#endif
