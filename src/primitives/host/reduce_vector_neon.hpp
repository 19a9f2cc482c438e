// The operations of reduce_vector.hpp that need aarch64 instructions; all are in the architecture's baseline.
// Included by it alone.
#pragma once

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

// aarch64 has no store that both bypasses the caches and takes one vector; a plain store it is.
STRETTO_VECTOR_INLINE void storeStream(std::byte* to, Bytes vector) {
  store(to, vector);
}
STRETTO_VECTOR_INLINE void fenceStreams() {}

// The low 32 bits of each lane multiplied to 64.
STRETTO_VECTOR_INLINE Words64 multiplyWide(Words64 a, Words64 b) {
  return (Words64)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
}

// The first and second half of the bytes, sign-extended.
STRETTO_VECTOR_INLINE void widenBytes(Bytes bytes, Words16& first, Words16& second) {
  first = (Words16)vmovl_s8(vget_low_s8((int8x16_t)bytes));
  second = (Words16)vmovl_high_s8((int8x16_t)bytes);
}

// Four vectors of numbers up to 255, as bytes in the same order.
STRETTO_VECTOR_INLINE Bytes packBytes(Words32 a, Words32 b, Words32 c, Words32 d) {
  const uint16x8_t low = vcombine_u16(vmovn_u32((uint32x4_t)a), vmovn_u32((uint32x4_t)b));
  const uint16x8_t high = vcombine_u16(vmovn_u32((uint32x4_t)c), vmovn_u32((uint32x4_t)d));
  return (Bytes)vcombine_u8(vmovn_u16(low), vmovn_u16(high));
}

#define STRETTO_HARDWARE_HALF 1
// fp16 to fp32, exact.
STRETTO_VECTOR_INLINE void widenHalves(Words16 halves, Floats& first, Floats& second) {
  const float16x8_t values = vreinterpretq_f16_u16((uint16x8_t)halves);
  first = (Floats)vcvt_f32_f16(vget_low_f16(values));
  second = (Floats)vcvt_high_f32_f16(values);
}
// fp32 to fp16, nearest even.
STRETTO_VECTOR_INLINE Words16 narrowToHalves(Floats first, Floats second) {
  const float16x8_t values =
      vcombine_f16(vcvt_f16_f32((float32x4_t)first), vcvt_f16_f32((float32x4_t)second));
  return (Words16)vreinterpretq_u16_f16(values);
}

// IEEE 754-2019 maximum and minimum: -0 < +0, NaN if either is NaN. FMAX and FMIN are exactly that.
STRETTO_VECTOR_INLINE Floats maximum(Floats a, Floats b) {
  return (Floats)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}
STRETTO_VECTOR_INLINE Floats minimum(Floats a, Floats b) {
  return (Floats)vminq_f32((float32x4_t)a, (float32x4_t)b);
}
STRETTO_VECTOR_INLINE Doubles maximum(Doubles a, Doubles b) {
  return (Doubles)vmaxq_f64((float64x2_t)a, (float64x2_t)b);
}
STRETTO_VECTOR_INLINE Doubles minimum(Doubles a, Doubles b) {
  return (Doubles)vminq_f64((float64x2_t)a, (float64x2_t)b);
}

}  // namespace
}  // namespace stretto
