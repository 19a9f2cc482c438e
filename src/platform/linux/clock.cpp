#include "platform/clock.hpp"

#include <ctime>

namespace stretto::platform {
namespace {

uint64_t read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

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

uint64_t monotonicNanoseconds() {
  return read(CLOCK_MONOTONIC);
}
uint64_t realtimeNanoseconds() {
  return read(CLOCK_REALTIME);
}

}  // namespace stretto::platform
