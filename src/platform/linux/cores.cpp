#include "platform/cores.hpp"

#include <sched.h>

#include <memory>

namespace stretto::platform {

std::vector<int> usableCoreNumbers(int most) {
  // The kernel refuses a set smaller than its own, so the set is at least as large as core numbers go.
  constexpr int kKernelsMost = 8192;
  const size_t bytes = CPU_ALLOC_SIZE(kKernelsMost);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kKernelsMost),
                                                             [](cpu_set_t* s) { CPU_FREE(s); });
  std::vector<int> cores;
  if (set != nullptr && sched_getaffinity(0, bytes, set.get()) == 0) {
    for (int core = 0; core < most && core < kKernelsMost; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set.get())) cores.push_back(core);
    }
  }
  return cores.empty() ? std::vector<int>{0} : cores;
}

}  // namespace stretto::platform
