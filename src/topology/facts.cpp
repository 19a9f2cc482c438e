#include "topology/facts.hpp"

#include <algorithm>
#include <charconv>

#include "base/json.hpp"

namespace stretto::topology {
namespace {

constexpr int64_t kMostMemory = int64_t{1} << 56;
constexpr size_t kMostNodes = 1024;
constexpr size_t kMostCaches = size_t{8} * kMostCores;
constexpr size_t kMostDevices = 1024;
constexpr size_t kMostName = 255;
constexpr size_t kMostList = size_t{1} << 16;

// A number at the front of `text`, taken off it; -1 if there is none.
int takeNumber(std::string_view& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool takeCharacter(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

Result<Cores> coresAt(const json::Value& object, const char* key) {
  const Result<std::string> text = object.textAt(key, kMostList);
  if (!text.ok()) return text.status();
  return parseCores(text.value());
}

Status readInto(const json::Value& object, Node& node) {
  const auto id = object.integerAt("id", 0, kMostCores);
  if (!id.ok()) return id.status();
  auto cores = coresAt(object, "cores");
  if (!cores.ok()) return cores.status();
  const auto memory = object.integerAt("memory_bytes", 0, kMostMemory);
  if (!memory.ok()) return memory.status();
  node = {static_cast<int>(id.value()), std::move(cores.value()), static_cast<uint64_t>(memory.value())};
  return kOkStatus;
}

Status readInto(const json::Value& object, Cache& cache) {
  const auto level = object.integerAt("level", 1, 9);
  if (!level.ok()) return level.status();
  const auto bytes = object.integerAt("bytes", 0, kMostMemory);
  if (!bytes.ok()) return bytes.status();
  auto cores = coresAt(object, "cores");
  if (!cores.ok()) return cores.status();
  cache = {static_cast<int>(level.value()), static_cast<uint64_t>(bytes.value()), std::move(cores.value())};
  if (!cache.cores.empty()) return kOkStatus;
  return fail(Code::kInvalidUsage, "line %u: a cache needs at least one core", object.line());
}

Status readInto(const json::Value& object, platform::nvml::NvlinksTo& links) {
  auto to = object.textAt("to", kMostName);
  if (!to.ok()) return to.status();
  const auto count = object.integerAt("count", 1, 1024);
  if (!count.ok()) return count.status();
  const auto speed = object.integerAt("megabytes_per_second", 0, 1000000);
  if (!speed.ok()) return speed.status();
  links = {std::move(to.value()), static_cast<int>(count.value()), static_cast<int>(speed.value())};
  return kOkStatus;
}

Status readInto(const json::Value& object, Device& device);

template <typename T>
Status readList(const json::Value& root, const char* key, size_t most, std::vector<T>& into) {
  const auto list = root.itemsAt(key, json::Kind::kObject, most);
  if (!list.ok()) return list.status();
  for (const json::Value& object : list.value()) STRETTO_TRY(readInto(object, into.emplace_back()));
  return kOkStatus;
}

Status readInto(const json::Value& object, Device& device) {
  for (const auto& [key, into] : {std::pair{"name", &device.gpu.name}, std::pair{"uuid", &device.gpu.uuid},
                                  std::pair{"bus_id", &device.gpu.busId}}) {
    auto text = object.textAt(key, kMostName);
    if (!text.ok()) return text.status();
    *into = std::move(text.value());
  }
  const auto node = object.integerAt("node", -1, kMostCores);
  if (!node.ok()) return node.status();
  const auto memory = object.integerAt("memory_bytes", 0, kMostMemory);
  if (!memory.ok()) return memory.status();
  device.node = static_cast<int>(node.value());
  device.gpu.memoryBytes = static_cast<uint64_t>(memory.value());
  return readList(object, "nvlinks", kMostDevices, device.gpu.links);
}

Status readHost(const json::Value& root, Facts& facts) {
  auto hostname = root.textAt("hostname", kMostName);
  if (!hostname.ok()) return hostname.status();
  auto processor = root.textAt("processor", kMostName);
  if (!processor.ok()) return processor.status();
  const auto memory = root.integerAt("memory_bytes", 0, kMostMemory);
  if (!memory.ok()) return memory.status();
  auto usable = coresAt(root, "usable_cores");
  if (!usable.ok()) return usable.status();
  if (usable.value().empty()) {
    return fail(Code::kInvalidUsage, "line %u: \"usable_cores\" must name at least one core", root.line());
  }
  facts.hostname = std::move(hostname.value());
  facts.processor = std::move(processor.value());
  facts.memoryBytes = static_cast<uint64_t>(memory.value());
  facts.usable = std::move(usable.value());
  return kOkStatus;
}

// A core is in one node at most, and a node is listed once.
Status checkNodes(const std::vector<Node>& nodes) {
  std::vector<bool> seen(kMostCores);
  std::vector<bool> listed(kMostCores + 1);
  for (const Node& node : nodes) {
    if (listed[static_cast<size_t>(node.id)]) {
      return fail(Code::kInvalidUsage, "node %d is listed twice", node.id);
    }
    listed[static_cast<size_t>(node.id)] = true;
    for (const int core : node.cores) {
      if (seen[static_cast<size_t>(core)]) {
        return fail(Code::kInvalidUsage, "core %d is in two nodes", core);
      }
      seen[static_cast<size_t>(core)] = true;
    }
  }
  return kOkStatus;
}

}  // namespace

Result<Cores> parseCores(std::string_view text) {
  Cores cores;
  const auto refuse = [&] {
    return fail(Code::kInvalidUsage, "not a list of cores such as 0-3,8 (ascending, below %d): \"%.60s\"",
                kMostCores, std::string(text.substr(0, 60)).c_str());
  };
  for (std::string_view rest = text; !rest.empty();) {
    const int first = takeNumber(rest);
    const int last = takeCharacter(rest, '-') ? takeNumber(rest) : first;
    const bool ascending = first >= 0 && last >= first && (cores.empty() || first > cores.back());
    if (!ascending || last >= kMostCores) return refuse();
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (!rest.empty() && (!takeCharacter(rest, ',') || rest.empty())) return refuse();
  }
  return cores;
}

std::string toText(const Cores& cores) {
  std::string text;
  for (size_t begin = 0; begin < cores.size();) {
    size_t end = begin + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[begin]);
    if (end - begin > 1) text += '-' + std::to_string(cores[end - 1]);
    begin = end;
  }
  return text;
}

std::string toJson(const Facts& facts) {
  json::Writer writer(true);
  writer.beginObject();
  writer.key("schema").text(kSchema);
  writer.key("hostname").text(facts.hostname);
  writer.key("processor").text(facts.processor);
  writer.key("memory_bytes").integer(static_cast<int64_t>(facts.memoryBytes));
  writer.key("usable_cores").text(toText(facts.usable));
  writer.key("nodes").beginArray();
  for (const Node& node : facts.nodes) {
    writer.beginObject().key("id").integer(node.id).key("cores").text(toText(node.cores));
    writer.key("memory_bytes").integer(static_cast<int64_t>(node.memoryBytes)).endObject();
  }
  writer.endArray().key("caches").beginArray();
  for (const Cache& cache : facts.caches) {
    writer.beginObject().key("level").integer(cache.level);
    writer.key("bytes").integer(static_cast<int64_t>(cache.bytes));
    writer.key("cores").text(toText(cache.cores)).endObject();
  }
  writer.endArray().key("devices").beginArray();
  for (const auto& [gpu, node] : facts.devices) {
    writer.beginObject().key("name").text(gpu.name).key("uuid").text(gpu.uuid).key("bus_id").text(gpu.busId);
    writer.key("node").integer(node).key("memory_bytes").integer(static_cast<int64_t>(gpu.memoryBytes));
    writer.key("nvlinks").beginArray();
    for (const platform::nvml::NvlinksTo& links : gpu.links) {
      writer.beginObject().key("to").text(links.to).key("count").integer(links.count);
      writer.key("megabytes_per_second").integer(links.megabytesPerSecond).endObject();
    }
    writer.endArray().endObject();
  }
  writer.endArray().endObject();
  return writer.take() + "\n";
}

Result<Facts> fromJson(std::string_view text) {
  const auto parsed = json::parse(text);
  if (!parsed.ok()) return parsed.status();
  const json::Value& root = parsed.value();
  const auto schema = root.textAt("schema", kMostName);
  if (!schema.ok()) return schema.status();
  if (schema.value() != kSchema) {
    return fail(Code::kInvalidUsage, "the schema is \"%.60s\", not \"%s\"", schema.value().c_str(), kSchema);
  }
  Facts facts;
  STRETTO_TRY(readHost(root, facts));
  STRETTO_TRY(readList(root, "nodes", kMostNodes, facts.nodes));
  STRETTO_TRY(readList(root, "caches", kMostCaches, facts.caches));
  STRETTO_TRY(checkNodes(facts.nodes));
  STRETTO_TRY(readList(root, "devices", kMostDevices, facts.devices));
  return facts;
}

uint64_t lastLevelCacheBytes(const Facts& facts) {
  int level = 0;
  uint64_t bytes = 0;
  for (const Cache& cache : facts.caches) {
    const bool ours = std::find_first_of(cache.cores.begin(), cache.cores.end(), facts.usable.begin(),
                                         facts.usable.end()) != cache.cores.end();
    if (!ours || cache.level < level) continue;
    bytes = cache.level > level ? cache.bytes : std::max(bytes, cache.bytes);
    level = cache.level;
  }
  return bytes;
}

Nvlink nvlinkBetween(const std::vector<Device>& devices, std::string_view busId, std::string_view other) {
  const auto find = [&](std::string_view id) {
    return std::find_if(devices.begin(), devices.end(),
                        [&](const Device& device) { return device.gpu.busId == id; });
  };
  const auto one = find(busId), two = find(other);
  if (one == devices.end() || two == devices.end()) return Nvlink::kUnknown;
  const auto leads = [](const Device& from, std::string_view to) {
    const auto& links = from.gpu.links;
    return std::any_of(links.begin(), links.end(), [&](const auto& each) { return each.to == to; });
  };
  using platform::nvml::kSwitch;
  const bool linked =
      leads(*one, other) || leads(*two, busId) || (leads(*one, kSwitch) && leads(*two, kSwitch));
  return linked ? Nvlink::kYes : Nvlink::kNo;
}

int nodeOf(const Facts& facts, int core) {
  for (const Node& node : facts.nodes) {
    if (std::binary_search(node.cores.begin(), node.cores.end(), core)) return node.id;
  }
  return -1;
}

}  // namespace stretto::topology
