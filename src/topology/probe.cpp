// Reads the kernel's files (sysfs and proc of Linux): each read bounded, each absence tolerated. A system
// that has calls for that instead is asked by these.
#include "topology/probe.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/os.hpp"
#include "base/parameters.hpp"
#include "platform/cores.hpp"
#include "platform/machine.hpp"

namespace stretto::topology {
namespace {

constexpr int kMostNodeId = 1024;
constexpr int kMostCacheIndex = 10;
constexpr size_t kMostRead = size_t{1} << 16;

// The file's text without the line break at its end; empty when it is not there.
std::string readText(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(os::openFile(path, os::Access::kRead), fclose);
  if (file == nullptr) return {};
  std::string text(kMostRead, '\0');
  text.resize(fread(text.data(), 1, text.size(), file.get()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// "48K", "105M" or "512 kB"; 0 when it is something else.
uint64_t parseSize(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > uint64_t{1} << 40) return 0;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return value;
  if (unit[0] == 'k' || unit[0] == 'K') return value << 10;
  return unit[0] == 'M' ? value << 20 : 0;
}

// What follows `key` and its colon on the first line that holds it.
std::string_view fieldOf(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == text.npos) return {};
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  line.remove_prefix(std::min(line.find(':'), line.size() - 1) + 1);
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  return line;
}

// The kernel's list, or nothing if it makes no sense.
Cores readCores(const std::string& path) {
  auto cores = parseCores(readText(path));
  return cores.ok() ? std::move(cores.value()) : Cores{};
}

std::vector<Node> probeNodes(const ProbeSources& sources) {
  const std::string folder = sources.sys + "/devices/system/node";
  std::vector<Node> nodes;
  for (const int id : readCores(folder + "/online")) {
    if (id > kMostNodeId) break;
    const std::string node = folder + "/node" + std::to_string(id);
    const std::string memory = readText(node + "/meminfo");
    nodes.push_back({id, readCores(node + "/cpulist"), parseSize(fieldOf(memory, "MemTotal"))});
  }
  const bool useful = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return !n.cores.empty(); });
  if (useful) return nodes;
  return {{0, sources.usable, parseSize(fieldOf(readText(sources.proc + "/meminfo"), "MemTotal"))}};
}

void sortCaches(std::vector<Cache>& caches) {
  std::sort(caches.begin(), caches.end(), [](const Cache& a, const Cache& b) {
    return a.level != b.level ? a.level < b.level : a.cores < b.cores;
  });
}

// Caches of the usable cores. A cache is read through its first core only: at one index of the kernel's
// numbering, a core that some cache covers already has no other.
std::vector<Cache> probeCaches(const ProbeSources& sources) {
  std::vector<Cache> caches;
  std::vector<bool> covered(static_cast<size_t>(kMostCores) * kMostCacheIndex);
  for (const int core : sources.usable) {
    const std::string folder =
        sources.sys + "/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index";
    for (int index = 0; index < kMostCacheIndex; ++index) {
      const auto flag = [&](int of) { return static_cast<size_t>(of) * kMostCacheIndex + index; };
      if (covered[flag(core)]) continue;
      const std::string path = folder + std::to_string(index);
      const std::string type = readText(path + "/type");
      if (type.empty()) break;
      Cache cache{static_cast<int>(parseSize(readText(path + "/level"))), parseSize(readText(path + "/size")),
                  readCores(path + "/shared_cpu_list")};
      for (const int sharer : cache.cores) covered[flag(sharer)] = true;
      const bool sane = cache.level >= 1 && cache.level <= 9 && cache.bytes > 0 && !cache.cores.empty();
      if (sane && type != "Instruction") caches.push_back(std::move(cache));
    }
  }
  sortCaches(caches);
  return caches;
}

// What the system says by calls, where it has such calls, holds rather than files: under Wine there are those
// of the Linux below.
void takeOver(const platform::MachineFacts& machine, Facts& found) {
  if (!machine.processor.empty()) found.processor = machine.processor.substr(0, 255);
  if (machine.memoryBytes != 0) found.memoryBytes = machine.memoryBytes;
  if (!machine.nodes.empty()) {
    found.nodes.clear();
    for (const auto& node : machine.nodes) found.nodes.push_back({node.id, node.cores, node.memoryBytes});
  }
  if (machine.caches.empty()) return;
  found.caches.clear();
  for (const auto& cache : machine.caches) {
    if (cache.level >= 1 && cache.level <= 9 && cache.bytes > 0 && !cache.cores.empty())
      found.caches.push_back({cache.level, cache.bytes, cache.cores});
  }
  sortCaches(found.caches);
}

Status dump(const Facts& facts, const std::string& path) {
  const std::string text = toJson(facts);
  // Writing to a pipe would wait for one that reads, as would opening it.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(os::openFile(path, os::Access::kReplace), fclose);
  if (file == nullptr || fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      fflush(file.get()) != 0) {
    return failErrno("%s: cannot write %s", parameters::kTopologyDump.name(), path.c_str());
  }
  STRETTO_LOG(kInfo, kGraph, "topology: written to %s", path.c_str());
  return kOkStatus;
}

Result<Facts> factsFromFile(const std::string& path) {
  const auto text = json::readFile(path);
  if (!text.ok()) return text.status();
  auto found = fromJson(text.value());
  if (!found.ok()) setLastError(path + " (" + parameters::kTopologyFile.name() + "): " + lastError());
  return found;
}

}  // namespace

ProbeSources ProbeSources::ofThisProcess() {
  ProbeSources sources;
  char name[256];
  if (os::hostName(name, sizeof name)) sources.hostname = name;
  sources.usable = platform::usableCoreNumbers(kMostCores);
  return sources;
}

Facts probe(const ProbeSources& sources) {
  Facts found;
  found.hostname = sources.hostname;
  found.usable = sources.usable.empty() ? Cores{0} : sources.usable;
  found.processor = fieldOf(readText(sources.proc + "/cpuinfo"), "model name").substr(0, 255);
  found.memoryBytes = parseSize(fieldOf(readText(sources.proc + "/meminfo"), "MemTotal"));
  found.nodes = probeNodes(sources);
  found.caches = probeCaches(sources);
  takeOver(platform::describeMachine(), found);
  return found;
}

std::vector<Device> probeDevices(const ProbeSources& sources, const char* nvml) {
  std::string why;
  std::vector<Device> devices;
  for (platform::nvml::Device& gpu : platform::nvml::devices(&why, nvml)) {
    int node = -1;
    const std::string text = readText(sources.sys + "/bus/pci/devices/" + gpu.busId + "/numa_node");
    std::from_chars(text.data(), text.data() + text.size(), node);
    devices.push_back({std::move(gpu), std::clamp(node, -1, kMostNodeId)});
  }
  if (devices.empty()) STRETTO_LOG(kInfo, kGraph, "topology: no GPUs: %s", why.c_str());
  return devices;
}

Result<Facts> loadFacts() {
  Result<Facts> found = parameters::kTopologyFile.isSet() ? factsFromFile(parameters::kTopologyFile.text())
                                                          : Result<Facts>(probe());
  if (found.ok() && parameters::kTopologyDump.isSet()) {
    if (!parameters::kTopologyFile.isSet()) found.value().devices = probeDevices();
    STRETTO_TRY(dump(found.value(), parameters::kTopologyDump.text()));
  }
  return found;
}

Result<const Facts*> facts() {
  struct Found {
    Result<Facts> result = loadFacts();
    std::string error = result.ok() ? std::string() : lastError();
  };
  static const Found found;
  if (found.result.ok()) return &found.result.value();
  setLastError(found.error);
  return found.result.status();
}

Result<const Facts*> factsWithDevices() {
  const auto known = facts();
  if (!known.ok() || parameters::kTopologyFile.isSet()) return known;
  static const Facts whole = [&] {
    Facts all = *known.value();
    if (all.devices.empty()) all.devices = probeDevices();
    return all;
  }();
  return &whole;
}

}  // namespace stretto::topology
