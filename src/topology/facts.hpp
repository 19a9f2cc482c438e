// Facts about this host that Stretto uses: which cores the process may use, how they are grouped into NUMA
// nodes, which caches they share, how much memory there is; its GPUs and their links. Plain values; probed
// from the kernel's files or read from a file. What is unknown (a container without sysfs) is empty or zero,
// never invented.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "platform/nvml.hpp"

namespace stretto::topology {

inline constexpr const char* kSchema = "stretto.topology/1";
inline constexpr int kMostCores = 8192;  // core numbers are below this

// Core numbers as the kernel counts them, ascending, each once.
using Cores = std::vector<int>;

struct Node {
  int id = 0;
  Cores cores;  // may be empty: memory without cores
  uint64_t memoryBytes = 0;

  bool operator==(const Node&) const = default;
};

// One data or unified cache, and the cores that share it.
struct Cache {
  int level = 1;
  uint64_t bytes = 0;
  Cores cores;

  bool operator==(const Cache&) const = default;
};

// A GPU of the host, whether this process may use it or not.
struct Device {
  platform::nvml::Device gpu;
  int node = -1;  // of NUMA; -1: unknown

  bool operator==(const Device&) const = default;
};

struct Facts {
  std::string hostname;
  std::string processor;  // the model's name; empty where the kernel does not say
  Cores usable;           // this process's affinity; never empty
  std::vector<Node> nodes;
  std::vector<Cache> caches;  // by level, then first core
  uint64_t memoryBytes = 0;
  std::vector<Device> devices;

  bool operator==(const Facts&) const = default;
};

// "0-3,8" and back; kInvalidUsage unless ascending, each core once, all below kMostCores.
Result<Cores> parseCores(std::string_view text);
std::string toText(const Cores& cores);

std::string toJson(const Facts& facts);
Result<Facts> fromJson(std::string_view text);

// The largest cache that a usable core has at the highest level; 0 when unknown.
uint64_t lastLevelCacheBytes(const Facts& facts);
// Whether NVLink leads from one GPU to another, directly or because both are on switches. kUnknown where one
// of them is not listed.
enum class Nvlink : uint8_t { kNo, kYes, kUnknown };
Nvlink nvlinkBetween(const std::vector<Device>& devices, std::string_view busId, std::string_view other);
// The node that holds `core`, or -1.
int nodeOf(const Facts& facts, int core);

}  // namespace stretto::topology
