#include "platform/clock.hpp"

namespace stretto::platform {
namespace {

double calibrate() {
#if defined(__aarch64__)
  uint64_t frequency;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
  return static_cast<double>(frequency);
#else
  const uint64_t startNs = monotonicNanoseconds();
  const uint64_t startTicks = ticks();
  uint64_t nowNs = startNs;
  while (nowNs - startNs < 2000000) {
    nowNs = monotonicNanoseconds();
  }
  return static_cast<double>(ticks() - startTicks) * 1e9 / static_cast<double>(nowNs - startNs);
#endif
}

}  // namespace

double tickRate() {
  static const double rate = calibrate();
  return rate;
}

}  // namespace stretto::platform
