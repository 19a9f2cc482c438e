#include "platform/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace stretto::platform {
namespace {

// The kernel refuses a set smaller than its own, so the set is at least as large as core numbers go.
constexpr int kKernelsMost = 8192;
const size_t kSetBytes = CPU_ALLOC_SIZE(kKernelsMost);

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
std::unique_ptr<cpu_set_t, FreeSet> emptySet() {
  std::unique_ptr<cpu_set_t, FreeSet> set(CPU_ALLOC(kKernelsMost));
  if (set != nullptr) CPU_ZERO_S(kSetBytes, set.get());
  return set;
}

}  // namespace

std::vector<int> usableCoreNumbers(int most) {
  const auto set = emptySet();
  std::vector<int> cores;
  if (set != nullptr && sched_getaffinity(0, kSetBytes, set.get()) == 0) {
    for (int core = 0; core < most && core < kKernelsMost; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), kSetBytes, set.get())) cores.push_back(core);
    }
  }
  return cores.empty() ? std::vector<int>{0} : cores;
}

// The kernel takes a set of which some cores may be used, and forgets the others: that is asked for by
// nobody.
bool bindThisThread(const std::vector<int>& cores) {
  const std::vector<int> usable = usableCoreNumbers(kKernelsMost);
  const auto set = emptySet();
  errno = EINVAL;
  if (set == nullptr || cores.empty()) return false;
  for (const int core : cores) {
    if (!std::binary_search(usable.begin(), usable.end(), core)) return false;
    CPU_SET_S(static_cast<size_t>(core), kSetBytes, set.get());
  }
  return sched_setaffinity(0, kSetBytes, set.get()) == 0;
}

}  // namespace stretto::platform
