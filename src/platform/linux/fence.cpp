#include "platform/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "platform/own_thread.hpp"

namespace stretto::platform {
namespace {

// Between processes MEMBARRIER_CMD_GLOBAL: the slow one, as its expedited form wants processes to register
// beforehand, which takes as long as the slow one itself once they have several threads.
long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

bool offers(int command) {
  const long commands = membarrier(MEMBARRIER_CMD_QUERY);
  return commands > 0 && (commands & command) != 0;
}

#ifdef SYS_close_range
constexpr long kCloseRange = SYS_close_range;
#else
constexpr long kCloseRange = 436;  // everywhere
#endif

// For this thread alone. A thread that waits in membarrier cannot be killed, and what a process has open is
// closed when the last thread that shares it has ended: a rank that dies meanwhile would seem to live, for
// seconds on a full machine. Kernels before Linux 5.9 refuse, and the thread goes on sharing all.
void shareNoDescriptors() {
  constexpr unsigned kFirst = 0, kLast = ~0U, kUnshare = 1U << 1;
  (void)::syscall(kCloseRange, kFirst, kLast, kUnshare);
}

// On a thread of its own; here, if there is none.
template <typename Work>
void apart(Work work) {
  const auto alone = [work] {
    shareNoDescriptors();
    work();
  };
  if (!startAlone(alone)) work();
}

}  // namespace

bool hasHeavyFence() {
  static const bool can = offers(MEMBARRIER_CMD_GLOBAL);
  return can;
}

bool heavyFence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return hasHeavyFence() && membarrier(MEMBARRIER_CMD_GLOBAL) == 0;
}

HeavyFence::HeavyFence() : passed_(std::make_shared<std::atomic<bool>>(false)) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!hasHeavyFence()) return;
  apart([passed = passed_] { passed->store(heavyFence(), std::memory_order_release); });
}

bool hasProcessFence() {
  static const bool can = [] {
    if (!offers(MEMBARRIER_CMD_PRIVATE_EXPEDITED) || !offers(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
      return false;
    apart([] { (void)membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); });
    return true;
  }();
  return can;
}

bool processFence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return hasProcessFence() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

void FencePair::rare() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // The kernel does not know yet that this process wants it, or a sandbox that came later refuses it: a store
  // is seen long before this ends.
  constexpr auto kLongForAStore = std::chrono::milliseconds(1);
  if (light_ && !processFence()) std::this_thread::sleep_for(kLongForAStore);
}

}  // namespace stretto::platform
