#include "platform/futex.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace stretto::platform {

bool futexWait(const uint32_t* word, uint32_t expected, uint64_t microseconds) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(microseconds / 1000000);
  limit.tv_nsec = static_cast<long>(microseconds % 1000000) * 1000;
  return syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0) != 0 && errno == ETIMEDOUT;
}

void futexWake(const uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void yieldCore() {
  sched_yield();
}

}  // namespace stretto::platform
