#include "platform/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace stretto::platform {
namespace {

// MEMBARRIER_CMD_GLOBAL: the slow one, as its expedited form wants processes to register beforehand, which
// takes as long as the slow one itself once they have several threads.
long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

}  // namespace

bool hasHeavyFence() {
  static const bool can = [] {
    const long commands = membarrier(MEMBARRIER_CMD_QUERY);
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL) != 0;
  }();
  return can;
}

bool heavyFence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return hasHeavyFence() && membarrier(MEMBARRIER_CMD_GLOBAL) == 0;
}

}  // namespace stretto::platform
