#include "platform/clock.hpp"

#include "platform/windows/native.hpp"

namespace stretto::platform {

uint64_t monotonicNanoseconds() {
  static const auto frequency = [] {
    LARGE_INTEGER each{};
    QueryPerformanceFrequency(&each);
    return static_cast<uint64_t>(each.QuadPart);
  }();
  LARGE_INTEGER now{};
  QueryPerformanceCounter(&now);
  const auto count = static_cast<uint64_t>(now.QuadPart);
  constexpr uint64_t kSecond = 1000000000;
  return count / frequency * kSecond + count % frequency * kSecond / frequency;
}

uint64_t realtimeNanoseconds() {
  constexpr uint64_t kFrom1601To1970 = 116444736000000000;  // in the unit of FILETIME, 100 ns
  FILETIME now{};
  GetSystemTimePreciseAsFileTime(&now);
  const uint64_t units = static_cast<uint64_t>(now.dwHighDateTime) << 32 | now.dwLowDateTime;
  return (units - kFrom1601To1970) * 100;
}

}  // namespace stretto::platform
