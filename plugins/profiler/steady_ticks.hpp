// The stamps of a recording: the processor's time-stamp counter where the kernel itself trusts it,
// CLOCK_MONOTONIC in nanoseconds otherwise. Decided once per process. The plugin may use this.
#pragma once

#include <cstdint>

#include "platform/clock.hpp"

namespace stretto::profiler {

class SteadyTicks {
 public:
  // Whether ticks are the counter's. The first call reads a file of the kernel's.
  static bool fromCounter();
  // `counter` is what fromCounter() said; the caller keeps it near.
  static uint64_t now(bool counter) {
    return __builtin_expect(counter, 1) ? platform::ticks() : platform::monotonicNanoseconds();
  }
};

}  // namespace stretto::profiler
