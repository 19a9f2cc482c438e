// Element-wise reductions on host memory: every DataType, every Operator, vectorised by what the CPU has and
// chosen at run time. For the Host backend and its executor; no communicator, no peers, no threads here.
//
// Arithmetic, the same to the last bit on every CPU level and architecture:
//  - integers wrap modulo 2^n; an average truncates toward zero after the wrapped sum;
//  - fp32 is reduced in fp32, fp64 in fp64, the 16- and 8-bit floats in fp32 with one rounding at the end
//    (nearest even; see numeric.hpp for overflow: 8-bit floats saturate);
//  - max and min are NaN if any operand is NaN, and order -0 below +0, so their result does not depend on
//    the order of the sources;
//  - a NaN result is the format's positive quiet NaN (0x7fc00000 in fp32) whatever NaN went in. One source
//    without a division is copied as it is, payloads included.
// The calling thread's rounding mode must be to nearest; flush-to-zero modes affect fp32, fp64 and bf16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/types.hpp"
#include "primitives/operation.hpp"

namespace stretto {

inline constexpr int kMaxReduceSources = 64;

// dst[i] = sources[0][i] op sources[1][i] op ... in exactly that order; 1 <= sourceCount <=
// kMaxReduceSources. Any alignment and any count, 0 included. dst may be identical to a source, but not
// partly overlap one. stream: dst is large and will not be read soon, so it is written around the caches
// where the CPU can.
void reduce(const ReduceSpec& spec, void* dst, const void* const* sources, int sourceCount, size_t count,
            bool stream = false);

// The same result to two destinations in one pass over the sources; stream applies to dst only. The
// destinations must not overlap each other.
void reduceTwo(const ReduceSpec& spec, void* dst, void* second, const void* const* sources, int sourceCount,
               size_t count, bool stream = false);

// dst[i] = src[i] * scalar in the type's arithmetic, as above; scalar points to one element of `type`, at
// any alignment. dst may be identical to src.
void scale(DataType type, void* dst, const void* src, const void* scalar, size_t count);

// Chooses the level that STRETTO_CPU names, or the best one this CPU has. kInvalidUsage, naming the possible
// ones, if the name is unknown or this CPU lacks the level; the level in use then stays. Thread-safe, may be
// called again. Reductions that run before the first call use the best level and do not read the variable.
Status selectCpuLevel();

// Name of the level in use: "scalar" (the architecture's baseline), "avx2", "avx512" or "neon".
const char* cpuLevel();

}  // namespace stretto
