#include "platform/machine.hpp"

#include <algorithm>

#include "platform/windows/native.hpp"

namespace stretto::platform {
namespace {

using windows::kInGroup;
using Record = SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX;

void addCores(const GROUP_AFFINITY& affinity, std::vector<int>* cores) {
  for (int bit = 0; bit < kInGroup; ++bit) {
    if ((affinity.Mask >> bit & 1) != 0) cores->push_back(affinity.Group * kInGroup + bit);
  }
}

// Calls `visit` with each record of that kind. The system has as many as it says the bytes of, unless a core
// comes between the two questions: then there are none this time.
template <typename Visit>
void forEach(LOGICAL_PROCESSOR_RELATIONSHIP kind, Visit visit) {
  DWORD bytes = 0;
  GetLogicalProcessorInformationEx(kind, nullptr, &bytes);
  if (GetLastError() != ERROR_INSUFFICIENT_BUFFER || bytes == 0) return;
  std::vector<std::byte> all(bytes);
  if (!GetLogicalProcessorInformationEx(kind, reinterpret_cast<Record*>(all.data()), &bytes)) return;
  for (size_t at = 0; at + sizeof(LOGICAL_PROCESSOR_RELATIONSHIP) + sizeof(DWORD) <= bytes;) {
    const auto& record = *reinterpret_cast<const Record*>(all.data() + at);
    if (record.Size == 0 || at + record.Size > bytes) return;
    if (record.Relationship == kind) visit(record);
    at += record.Size;
  }
}

// A node may have a record for each processor group that its cores are in.
std::vector<MachineNode> nodes() {
  std::vector<MachineNode> found;
  forEach(RelationNumaNode, [&](const Record& record) {
    const int id = static_cast<int>(record.NumaNode.NodeNumber);
    const auto known =
        std::find_if(found.begin(), found.end(), [&](const MachineNode& n) { return n.id == id; });
    MachineNode& node = known != found.end() ? *known : found.emplace_back(MachineNode{id, {}, 0});
    addCores(record.NumaNode.GroupMask, &node.cores);
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (MachineNode& node : found) std::sort(node.cores.begin(), node.cores.end());
  return found;
}

std::vector<MachineCache> caches() {
  std::vector<MachineCache> found;
  forEach(RelationCache, [&](const Record& record) {
    if (record.Cache.Type != CacheUnified && record.Cache.Type != CacheData) return;
    MachineCache cache{record.Cache.Level, record.Cache.CacheSize, {}};
    addCores(record.Cache.GroupMask, &cache.cores);
    found.push_back(std::move(cache));
  });
  return found;
}

std::string processorName() {
  wchar_t name[256] = L"";
  DWORD bytes = sizeof name;
  const LSTATUS status =
      RegGetValueW(HKEY_LOCAL_MACHINE, L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                   L"ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &bytes);
  return status == ERROR_SUCCESS ? windows::utf8(name) : std::string();
}

}  // namespace

MachineFacts describeMachine() {
  MachineFacts machine{processorName(), 0, nodes(), caches()};
  MEMORYSTATUSEX memory{};
  memory.dwLength = sizeof memory;
  if (GlobalMemoryStatusEx(&memory)) machine.memoryBytes = memory.ullTotalPhys;
  // What is free of a node is no more than all of it, and the system says no better: of one node it is known.
  if (machine.nodes.size() == 1) machine.nodes[0].memoryBytes = machine.memoryBytes;
  return machine;
}

}  // namespace stretto::platform
