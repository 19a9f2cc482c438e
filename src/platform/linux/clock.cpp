#include "platform/clock.hpp"

#include <ctime>

namespace stretto::platform {
namespace {

uint64_t read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

uint64_t monotonicNanoseconds() {
  return read(CLOCK_MONOTONIC);
}
uint64_t realtimeNanoseconds() {
  return read(CLOCK_REALTIME);
}

}  // namespace stretto::platform
