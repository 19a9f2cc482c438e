// Time. ticks() is the cheapest monotonic stamp the processor offers (the time-stamp counter on x86-64, the
// virtual counter on aarch64), comparable between the cores and processes of one host; everything that is
// kept or shown is converted once, by the reader.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace stretto::platform {

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
}

// Tells the processor that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

// Ticks per second, calibrated once per process (about 2 ms the first time).
double tickRate();
inline double tickSeconds(uint64_t difference) {
  return static_cast<double>(difference) / tickRate();
}

// CLOCK_MONOTONIC and CLOCK_REALTIME in nanoseconds.
uint64_t monotonicNanoseconds();
uint64_t realtimeNanoseconds();
// Since a time of monotonicNanoseconds().
inline double secondsSince(uint64_t nanoseconds) {
  return static_cast<double>(monotonicNanoseconds() - nanoseconds) * 1e-9;
}

}  // namespace stretto::platform
