#include "profiler/steady_ticks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace stretto::profiler {
namespace {

// The kernel lists the counter among its clocks only while it ticks evenly, in step on all cores and in idle
// states too.
bool kernelTrustsCounter() {
  const int descriptor =
      ::open("/sys/devices/system/clocksource/clocksource0/available_clocksource", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  char text[256];
  const ssize_t got = ::read(descriptor, text, sizeof text - 1);
  ::close(descriptor);
  text[got > 0 ? got : 0] = 0;
  for (char* word = text; (word = strpbrk(word, "abcdefghijklmnopqrstuvwxyz")) != nullptr;) {
    const size_t length = strcspn(word, " \n");
    const bool tsc = length == 3 && memcmp(word, "tsc", 3) == 0;
    const bool arm = length == 16 && memcmp(word, "arch_sys_counter", 16) == 0;
    if (tsc || arm) return true;
    word += length;
  }
  return false;
}

}  // namespace

bool SteadyTicks::fromCounter() {
  static const bool trusted = kernelTrustsCounter();
  return trusted;
}

}  // namespace stretto::profiler
