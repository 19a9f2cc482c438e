// The cores of this host that the calling thread may run on, by the kernel's numbers. Any folder may include
// this; any thread.
#pragma once

#include <bitset>
#include <vector>

namespace stretto::platform {

// Those below `most`, ascending; core 0 where the kernel does not say.
std::vector<int> usableCoreNumbers(int most);

// The same, as a set that travels between ranks.
inline constexpr int kMostCores = 1024;
using CoreSet = std::bitset<kMostCores>;
inline CoreSet usableCoreSet() {
  CoreSet cores;
  for (const int core : usableCoreNumbers(kMostCores)) cores.set(static_cast<size_t>(core));
  return cores;
}
inline int usableCores() {
  return static_cast<int>(usableCoreSet().count());
}

}  // namespace stretto::platform
