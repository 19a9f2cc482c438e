// The cores of this host that the calling thread may run on, by the kernel's numbers, and how to choose among
// them. Any folder may include this; any thread.
#pragma once

#include <bitset>
#include <vector>

namespace stretto::platform {

// Those below `most`, ascending; core 0 where the kernel does not say.
std::vector<int> usableCoreNumbers(int most);

// From now on the calling thread runs on these cores alone; on Linux so do threads that it starts later.
// False with errno set, and nothing has changed, where that cannot be: a core that is not there or that this
// thread may not use, none at all, or on Windows cores of several processor groups.
bool bindThisThread(const std::vector<int>& cores);

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
