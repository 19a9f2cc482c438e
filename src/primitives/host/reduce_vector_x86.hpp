// The operations of reduce_vector.hpp that need x86 instructions, for the three widths. Included by it alone.
#pragma once

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

#if defined(__AVX512F__)
#define STRETTO_X86(base, avx2, avx512) avx512
#elif defined(__AVX2__)
#define STRETTO_X86(base, avx2, avx512) avx2
#else
#define STRETTO_X86(base, avx2, avx512) base
#endif

using Integers = STRETTO_X86(__m128i, __m256i, __m512i);
using FloatLanes = STRETTO_X86(__m128, __m256, __m512);
using DoubleLanes = STRETTO_X86(__m128d, __m256d, __m512d);

// Writes around the caches; `to` is a multiple of kWidth. Ordered before later stores by fenceStreams only.
STRETTO_VECTOR_INLINE void storeStream(std::byte* to, Bytes vector) {
  STRETTO_X86(_mm_stream_si128, _mm256_stream_si256, _mm512_stream_si512)
  (reinterpret_cast<Integers*>(to), (Integers)vector);
}
STRETTO_VECTOR_INLINE void fenceStreams() {
  _mm_sfence();
}

// The low 32 bits of each lane multiplied to 64.
STRETTO_VECTOR_INLINE Words64 multiplyWide(Words64 a, Words64 b) {
  return (Words64)STRETTO_X86(_mm_mul_epu32, _mm256_mul_epu32, _mm512_mul_epu32)((Integers)a, (Integers)b);
}

// The first and second half of the bytes, sign-extended.
STRETTO_VECTOR_INLINE void widenBytes(Bytes bytes, Words16& first, Words16& second) {
#if defined(__AVX512F__)
  first = (Words16)_mm512_cvtepi8_epi16(_mm512_castsi512_si256((__m512i)bytes));
  second = (Words16)_mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64((__m512i)bytes, 1));
#elif defined(__AVX2__)
  first = (Words16)_mm256_cvtepi8_epi16(_mm256_castsi256_si128((__m256i)bytes));
  second = (Words16)_mm256_cvtepi8_epi16(_mm256_extracti128_si256((__m256i)bytes, 1));
#else
  first = (Words16)_mm_srai_epi16(_mm_unpacklo_epi8(_mm_setzero_si128(), (__m128i)bytes), 8);
  second = (Words16)_mm_srai_epi16(_mm_unpackhi_epi8(_mm_setzero_si128(), (__m128i)bytes), 8);
#endif
}

// Four vectors of numbers up to 255, as bytes in the same order.
STRETTO_VECTOR_INLINE Bytes packBytes(Words32 a, Words32 b, Words32 c, Words32 d) {
#if defined(__AVX512F__)
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i mixed = _mm512_packus_epi16(_mm512_packs_epi32((__m512i)a, (__m512i)b),
                                            _mm512_packs_epi32((__m512i)c, (__m512i)d));
  return (Bytes)_mm512_permutexvar_epi32(order, mixed);
#elif defined(__AVX2__)
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i mixed = _mm256_packus_epi16(_mm256_packs_epi32((__m256i)a, (__m256i)b),
                                            _mm256_packs_epi32((__m256i)c, (__m256i)d));
  return (Bytes)_mm256_permutevar8x32_epi32(mixed, order);
#else
  return (Bytes)_mm_packus_epi16(_mm_packs_epi32((__m128i)a, (__m128i)b),
                                 _mm_packs_epi32((__m128i)c, (__m128i)d));
#endif
}

#if defined(__F16C__)
#define STRETTO_HARDWARE_HALF 1
// fp16 to fp32, exact.
STRETTO_VECTOR_INLINE void widenHalves(Words16 halves, Floats& first, Floats& second) {
#if defined(__AVX512F__)
  first = (Floats)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)halves));
  second = (Floats)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)halves, 1));
#else
  first = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)halves));
  second = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)halves, 1));
#endif
}

// fp32 to fp16, nearest even.
STRETTO_VECTOR_INLINE Words16 narrowToHalves(Floats first, Floats second) {
#if defined(__AVX512F__)
  const __m256i low = _mm512_cvtps_ph((__m512)first, _MM_FROUND_TO_NEAREST_INT);
  const __m256i high = _mm512_cvtps_ph((__m512)second, _MM_FROUND_TO_NEAREST_INT);
  return (Words16)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#else
  const __m128i low = _mm256_cvtps_ph((__m256)first, _MM_FROUND_TO_NEAREST_INT);
  const __m128i high = _mm256_cvtps_ph((__m256)second, _MM_FROUND_TO_NEAREST_INT);
  return (Words16)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
#endif
}
#else
STRETTO_VECTOR_INLINE void widenWords(Words16 words, Words32& first, Words32& second) {
  first = (Words32)_mm_unpacklo_epi16((__m128i)words, _mm_setzero_si128());
  second = (Words32)_mm_unpackhi_epi16((__m128i)words, _mm_setzero_si128());
}
// The low 16 bits of each lane.
STRETTO_VECTOR_INLINE Words16 packWords(Words32 first, Words32 second) {
  const __m128i low = _mm_srai_epi32(_mm_slli_epi32((__m128i)first, 16), 16);
  const __m128i high = _mm_srai_epi32(_mm_slli_epi32((__m128i)second, 16), 16);
  return (Words16)_mm_packs_epi32(low, high);
}
#endif

// The compiler does not always see that these are one instruction.
STRETTO_VECTOR_INLINE Floats greater(Floats a, Floats b) {
  return (Floats)STRETTO_X86(_mm_max_ps, _mm256_max_ps, _mm512_max_ps)((FloatLanes)a, (FloatLanes)b);
}
STRETTO_VECTOR_INLINE Floats smaller(Floats a, Floats b) {
  return (Floats)STRETTO_X86(_mm_min_ps, _mm256_min_ps, _mm512_min_ps)((FloatLanes)a, (FloatLanes)b);
}
STRETTO_VECTOR_INLINE Doubles greater(Doubles a, Doubles b) {
  return (Doubles)STRETTO_X86(_mm_max_pd, _mm256_max_pd, _mm512_max_pd)((DoubleLanes)a, (DoubleLanes)b);
}
STRETTO_VECTOR_INLINE Doubles smaller(Doubles a, Doubles b) {
  return (Doubles)STRETTO_X86(_mm_min_pd, _mm256_min_pd, _mm512_min_pd)((DoubleLanes)a, (DoubleLanes)b);
}

// IEEE 754-2019 maximum and minimum: -0 < +0, NaN if either is NaN (which NaN does not matter, see Codec).
#if defined(__AVX512F__)
// vrange orders the zeros but prefers numbers over NaN.
STRETTO_VECTOR_INLINE Floats maximum(Floats a, Floats b) {
  const __m512 larger = _mm512_range_ps((__m512)a, (__m512)b, 5);
  const __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
  return (Floats)_mm512_mask_add_ps(larger, nan, (__m512)a, (__m512)b);
}
STRETTO_VECTOR_INLINE Floats minimum(Floats a, Floats b) {
  const __m512 smaller = _mm512_range_ps((__m512)a, (__m512)b, 4);
  const __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
  return (Floats)_mm512_mask_add_ps(smaller, nan, (__m512)a, (__m512)b);
}
STRETTO_VECTOR_INLINE Doubles maximum(Doubles a, Doubles b) {
  const __m512d larger = _mm512_range_pd((__m512d)a, (__m512d)b, 5);
  const __mmask8 nan = _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q);
  return (Doubles)_mm512_mask_add_pd(larger, nan, (__m512d)a, (__m512d)b);
}
STRETTO_VECTOR_INLINE Doubles minimum(Doubles a, Doubles b) {
  const __m512d smaller = _mm512_range_pd((__m512d)a, (__m512d)b, 4);
  const __mmask8 nan = _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q);
  return (Doubles)_mm512_mask_add_pd(smaller, nan, (__m512d)a, (__m512d)b);
}
#else
STRETTO_VECTOR_INLINE Words32 unordered(Floats a, Floats b) {
  return (Words32)STRETTO_X86(_mm_cmpunord_ps((__m128)a, (__m128)b),
                              _mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q), );
}
STRETTO_VECTOR_INLINE Words64 unordered(Doubles a, Doubles b) {
  return (Words64)STRETTO_X86(_mm_cmpunord_pd((__m128d)a, (__m128d)b),
                              _mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_UNORD_Q), );
}

// The two orders of the compare differ only where both are zero (and for NaN): `and` keeps a + sign there,
// `or` a - sign. All ones is a NaN.
template <typename V>
STRETTO_VECTOR_INLINE V maximum(V a, V b) {
  const auto nan = unordered(a, b);
  using Bits = decltype(unordered(a, b));
  return (V)(((Bits)greater(a, b) & (Bits)greater(b, a)) | nan);
}
template <typename V>
STRETTO_VECTOR_INLINE V minimum(V a, V b) {
  const auto nan = unordered(a, b);
  using Bits = decltype(unordered(a, b));
  return (V)((Bits)smaller(a, b) | (Bits)smaller(b, a) | nan);
}
#endif

#undef STRETTO_X86

}  // namespace
}  // namespace stretto
