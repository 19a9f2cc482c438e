// What the system says of the machine by calls: its processor, memory, NUMA nodes and caches. Linux says it
// in files, which topology/probe.cpp reads by a root that tests can choose; so there it is empty. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto::platform {

struct MachineNode {
  int id = 0;
  std::vector<int> cores;    // ascending; numbered as in cores.hpp
  uint64_t memoryBytes = 0;  // 0: unknown
};

// A data or unified cache.
struct MachineCache {
  int level = 0;
  uint64_t bytes = 0;
  std::vector<int> cores;
};

struct MachineFacts {
  std::string processor;
  uint64_t memoryBytes = 0;
  std::vector<MachineNode> nodes;  // by number
  std::vector<MachineCache> caches;
};

MachineFacts describeMachine();

}  // namespace stretto::platform
