#include "platform/cores.hpp"

#include "platform/windows/native.hpp"

namespace stretto::platform {

// Core b of processor group g has the number 64 g + b; a thread is in one group.
std::vector<int> usableCoreNumbers(int most) {
  constexpr int kInGroup = 64;
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

}  // namespace stretto::platform
