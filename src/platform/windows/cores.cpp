#include "platform/cores.hpp"

#include <algorithm>
#include <cerrno>

#include "platform/windows/native.hpp"

namespace stretto::platform {

using windows::kInGroup;

// A thread is in one group.
std::vector<int> usableCoreNumbers(int most) {
  std::vector<int> cores;
  GROUP_AFFINITY affinity{};
  if (GetThreadGroupAffinity(GetCurrentThread(), &affinity)) {
    for (int bit = 0; bit < kInGroup; ++bit) {
      const int core = affinity.Group * kInGroup + bit;
      if ((affinity.Mask >> bit & 1) != 0 && core < most) cores.push_back(core);
    }
  }
  return cores.empty() ? std::vector<int>{0} : cores;
}

bool bindThisThread(const std::vector<int>& cores) {
  const std::vector<int> usable = usableCoreNumbers(kInGroup << 8);
  GROUP_AFFINITY affinity{};
  errno = EINVAL;
  if (cores.empty() || cores.front() < 0) return false;
  affinity.Group = static_cast<WORD>(cores.front() / kInGroup);
  for (const int core : cores) {
    if (!std::binary_search(usable.begin(), usable.end(), core) || core / kInGroup != affinity.Group)
      return false;
    affinity.Mask |= KAFFINITY{1} << (core % kInGroup);
  }
  if (SetThreadGroupAffinity(GetCurrentThread(), &affinity, nullptr)) return true;
  windows::takeError();
  return false;
}

}  // namespace stretto::platform
