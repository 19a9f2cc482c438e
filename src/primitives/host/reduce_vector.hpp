// Vectors of one CPU level, for the level files only. Everything that can be is written with the compilers'
// vector extensions, once for all levels; what needs an instruction by name (non-temporal stores, fp16
// conversion, packing, wide multiplication, maximum) is in reduce_vector_x86.hpp and reduce_vector_neon.hpp,
// which define the same functions.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define STRETTO_VECTOR_INLINE [[gnu::always_inline]] inline

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

#if defined(__AVX512F__)
constexpr int kWidth = 64;
#elif defined(__AVX2__)
constexpr int kWidth = 32;
#else
constexpr int kWidth = 16;
#endif

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kWidth)));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;

using Bytes = Vector<uint8_t>;
using Words16 = Vector<uint16_t>;
using Words32 = Vector<uint32_t>;
using Words64 = Vector<uint64_t>;
using Floats = Vector<float>;
using Doubles = Vector<double>;

// The same bits as another vector type of the same size.
template <typename To, typename From>
STRETTO_VECTOR_INLINE To as(From vector) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)vector;  // NOLINT: vector reinterpretation is spelled as a cast
}

template <typename V, typename T>
STRETTO_VECTOR_INLINE V splat(T value) {
  return value - V{};
}

STRETTO_VECTOR_INLINE Bytes load(const std::byte* from) {
  Bytes vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

STRETTO_VECTOR_INLINE void store(std::byte* to, Bytes vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

// The first 1 to kWidth - 1 bytes of a vector; the others read as 0 and are not touched.
#if defined(__AVX512F__)
STRETTO_VECTOR_INLINE Bytes loadPartial(const std::byte* from, size_t bytes) {
  return (Bytes)_mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, bytes), from);
}
STRETTO_VECTOR_INLINE void storePartial(std::byte* to, Bytes vector, size_t bytes) {
  _mm512_mask_storeu_epi8(to, _bzhi_u64(~0ull, bytes), (__m512i)vector);
}
#else
template <typename T>
STRETTO_VECTOR_INLINE T loadAs(const std::byte* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
STRETTO_VECTOR_INLINE void storeAs(std::byte* to, uint64_t value) {
  const T narrow = static_cast<T>(value);
  __builtin_memcpy(to, &narrow, sizeof narrow);
}

// 16 to 32 bytes by two accesses that may overlap.
typedef uint8_t Bytes16 __attribute__((vector_size(16)));
[[maybe_unused]] STRETTO_VECTOR_INLINE void copyEnds(std::byte* to, const std::byte* from, size_t bytes) {
  const Bytes16 first = loadAs<Bytes16>(from);
  const Bytes16 last = loadAs<Bytes16>(from + bytes - sizeof last);
  __builtin_memcpy(to, &first, sizeof first);
  __builtin_memcpy(to + bytes - sizeof last, &last, sizeof last);
}

// 1 to 8 bytes as a little-endian number, likewise. In registers: a vector read from a buffer just written in
// pieces waits until the stores have retired, which the shortest messages would feel most. Everything here
// must be inlined: GCC omits vzeroupper where a function that takes a vector is called last.
STRETTO_VECTOR_INLINE uint64_t loadNumber(const std::byte* from, size_t bytes) {
  if (bytes >= 4) {
    const uint64_t last = loadAs<uint32_t>(from + bytes - 4);
    return loadAs<uint32_t>(from) | last << (8 * (bytes - 4));
  }
  if (bytes == 1) return loadAs<uint8_t>(from);
  const uint64_t last = loadAs<uint16_t>(from + bytes - 2);
  return loadAs<uint16_t>(from) | last << (8 * (bytes - 2));
}
STRETTO_VECTOR_INLINE void storeNumber(std::byte* to, uint64_t value, size_t bytes) {
  if (bytes >= 4) {
    storeAs<uint32_t>(to, value);
    return storeAs<uint32_t>(to + bytes - 4, value >> (8 * (bytes - 4)));
  }
  if (bytes == 1) return storeAs<uint8_t>(to, value);
  storeAs<uint16_t>(to, value);
  storeAs<uint16_t>(to + bytes - 2, value >> (8 * (bytes - 2)));
}

STRETTO_VECTOR_INLINE Bytes loadPartial(const std::byte* from, size_t bytes) {
  Words64 words{};
#if defined(__AVX2__)
  if (bytes >= 16) {
    std::byte padded[kWidth] = {};
    copyEnds(padded, from, bytes);
    return load(padded);
  }
#endif
  words[0] = loadNumber(from, bytes < 8 ? bytes : 8);
  if (bytes > 8) words[1] = loadNumber(from + 8, bytes - 8);
  return as<Bytes>(words);
}
STRETTO_VECTOR_INLINE void storePartial(std::byte* to, Bytes vector, size_t bytes) {
#if defined(__AVX2__)
  if (bytes >= 16) {
    std::byte padded[kWidth];
    store(padded, vector);
    return copyEnds(to, padded, bytes);
  }
#endif
  const Words64 words = as<Words64>(vector);
  storeNumber(to, words[0], bytes < 8 ? bytes : 8);
  if (bytes > 8) storeNumber(to + 8, words[1], bytes - 8);
}
#endif

// a > b ? a : b and a < b ? a : b, so that b results if either is NaN or both are zero.
template <typename V>
STRETTO_VECTOR_INLINE V greater(V a, V b) {
  return a > b ? a : b;
}
template <typename V>
STRETTO_VECTOR_INLINE V smaller(V a, V b) {
  return a < b ? a : b;
}

}  // namespace
}  // namespace stretto

#if defined(__x86_64__)
#include "primitives/host/reduce_vector_x86.hpp"
#elif defined(__aarch64__)
#include "primitives/host/reduce_vector_neon.hpp"
#else
#error "reduce_vector.hpp knows x86-64 and aarch64; add a reduce_vector_*.hpp for this architecture"
#endif
