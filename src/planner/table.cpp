#include "planner/table.hpp"

#include <algorithm>
#include <cstring>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "base/names.hpp"
#include "base/parameters.hpp"
#include "base/stable_sort.hpp"
#include "base/version.hpp"
#include "planner/names.hpp"
#include "primitives/cuda/reducer_kind.hpp"
#include "primitives/window.hpp"

namespace stretto::planner {
namespace {

constexpr const char* kTableSchema = "stretto.table/1";
constexpr size_t kMostEntries = 10000;
constexpr size_t kMostRows = 1000;
constexpr size_t kMostName = 64;
constexpr int64_t kMostCores = 8192;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr double kLeastMicroseconds = 1e-3;
constexpr double kMostMicroseconds = 1e9;
constexpr double kLeastRate = 1e-3;  // bytes per microsecond
constexpr double kMostRate = 1e6;
constexpr uint64_t kReachOfEnds = 4;

// With a core for every rank, further cores are the same.
int coresThatCount(int64_t cores, int ranks) {
  return static_cast<int>(std::clamp<int64_t>(cores, 0, ranks));
}

template <size_t kSize>
std::array<char, kSize> arrayOf(std::string_view text) {
  std::array<char, kSize> array{};
  text.copy(array.data(), kSize - 1);
  return array;
}

constexpr const char* kReductions[] = {"none", "float_sums", "others"};

const algorithms::Descriptor* descriptorOf(algorithms::Device device, Collective collective,
                                           Algorithm algorithm, Protocol protocol) {
  for (const auto& row : algorithms::descriptors(device)) {
    if (row.collective == collective && row.algorithm == algorithm && row.protocol == protocol) return &row;
  }
  return nullptr;
}

}  // namespace

// Turns the JSON into entries. Every number has a bound, every name is known, nothing appears twice.
class TableReader {
 public:
  static Status read(const json::Value& root, Table& table) {
    const auto schema = root.textAt("schema", kMostName);
    if (!schema.ok()) return schema.status();
    if (schema.value() != kTableSchema) {
      return fail(Code::kInvalidUsage, "the schema is \"%s\", not \"%s\"", schema.value().c_str(),
                  kTableSchema);
    }
    const json::Value* machine = root.find("machine");
    if (machine == nullptr || machine->kind() != json::Kind::kObject) {
      return fail(Code::kInvalidUsage, "line %u: \"machine\" must be an object", root.line());
    }
    const json::Value* links = root.find("between_hosts");
    if (links != nullptr) STRETTO_TRY(readHostLinks(*links, table.hostLinks_));
    if (links != nullptr && root.find("entries") == nullptr) {
      const auto shipped = Table::shipped();
      if (!shipped.ok()) return shipped.status();
      table.entries_ = shipped.value().entries_;
      return kOkStatus;
    }
    const auto entries = root.itemsAt("entries", json::Kind::kObject, kMostEntries);
    if (!entries.ok()) return entries.status();
    for (const json::Value& entry : entries.value()) {
      STRETTO_TRY(readEntry(entry, table.entries_.emplace_back()));
    }
    return kOkStatus;
  }

 private:
  static Status readHostLinks(const json::Value& object, HostLinks& links) {
    if (object.kind() != json::Kind::kObject) {
      return fail(Code::kInvalidUsage, "line %u: \"between_hosts\" must be an object", object.line());
    }
    const auto hop = object.numberAt("hop_us", kLeastMicroseconds, kMostMicroseconds);
    if (!hop.ok()) return hop.status();
    const auto message = object.numberAt("message_us", kLeastMicroseconds, kMostMicroseconds);
    if (!message.ok()) return message.status();
    const auto rate = object.numberAt("bytes_per_us", kLeastRate, kMostRate);
    if (!rate.ok()) return rate.status();
    const auto hostRate = object.numberAt("host_bytes_per_us", kLeastRate, kMostRate);
    if (!hostRate.ok()) return hostRate.status();
    links = {hop.value(), message.value(), rate.value(), hostRate.value(), true};
    return kOkStatus;
  }

  static Status readEntry(const json::Value& object, Table::Entry& entry) {
    STRETTO_TRY(readCase(object, entry.of));
    const auto rows = object.itemsAt("rows", json::Kind::kObject, kMostRows);
    if (!rows.ok()) return rows.status();
    entry.line = object.line();
    // Another version may have algorithms that this one has not.
    if (entry.of.onGpus() && entry.of.version != arrayOf<sizeof entry.of.version>(kLibraryVersion)) {
      return kOkStatus;
    }
    for (const json::Value& row : rows.value()) {
      STRETTO_TRY(readRow(row, entry.of, entry.rows.emplace_back()));
    }
    std::sort(entry.rows.begin(), entry.rows.end(),
              [](const Table::Row& a, const Table::Row& b) { return a.bytes < b.bytes; });
    const auto twin = std::adjacent_find(entry.rows.begin(), entry.rows.end(),
                                         [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
    if (twin == entry.rows.end()) return kOkStatus;
    return fail(Code::kInvalidUsage, "line %u: two rows of this entry have %llu bytes", object.line(),
                static_cast<unsigned long long>(twin->bytes));
  }

  static Status readCase(const json::Value& object, Table::Case& found) {
    const auto name = object.textAt("collective", kMostName);
    if (!name.ok()) return name.status();
    const auto collective = collectiveNamed(name.value());
    if (!collective || *collective == Collective::kReceive) {
      return fail(Code::kInvalidUsage, "line %u: \"%s\" is no collective of a table (receive goes by send)",
                  object.line(), name.value().c_str());
    }
    const auto ranks = object.integerAt("ranks", 2, kMaxRanks);
    if (!ranks.ok()) return ranks.status();
    const auto sameProcess = object.booleanAt("same_process");
    if (!sameProcess.ok()) return sameProcess.status();
    found.collective = *collective;
    found.ranks = static_cast<int>(ranks.value());
    found.sameProcess = sameProcess.value();
    return object.find("gpu") != nullptr ? readGpus(object, found) : readHost(object, found);
  }

  static Status readHost(const json::Value& object, Table::Case& found) {
    const auto cores = object.integerAt("cores", 1, kMostCores);
    if (!cores.ok()) return cores.status();
    const auto reach = object.booleanAt("reach");
    if (!reach.ok()) return reach.status();
    found.cores = coresThatCount(cores.value(), found.ranks);
    found.reach = reach.value();
    return kOkStatus;
  }

  static Status readGpus(const json::Value& object, Table::Case& found) {
    const auto gpu = object.textAt("gpu", found.gpu.size() - 1);
    if (!gpu.ok()) return gpu.status();
    const auto version = object.textAt("version", found.version.size() - 1);
    if (!version.ok()) return version.status();
    if (gpu.value().empty()) {
      return fail(Code::kInvalidUsage, "line %u: \"gpu\" is empty", object.line());
    }
    found.gpu = arrayOf<sizeof found.gpu>(gpu.value());
    found.version = arrayOf<sizeof found.version>(version.value());
    STRETTO_TRY(readName(
        object, "links", [](int i) { return nameOf(static_cast<Links>(i)); }, kLinkKinds, found.links));
    if (!reduces(found.collective)) return kOkStatus;
    STRETTO_TRY(readName(
        object, "reduction", [](int i) { return kReductions[i]; }, std::size(kReductions), found.reduction));
    if (found.reduction != Table::Reduction::kNone) return kOkStatus;
    return fail(Code::kInvalidUsage, "line %u: %s reduces, so its \"reduction\" is float_sums or others",
                object.line(), nameOf(found.collective));
  }

  template <typename E, typename NameOf>
  static Status readName(const json::Value& object, const char* key, NameOf nameOf, int names, E& value) {
    const auto text = object.textAt(key, kMostName);
    if (!text.ok()) return text.status();
    std::string known;
    for (int i = 0; i < names; ++i) {
      if (text.value() == nameOf(i)) {
        value = static_cast<E>(i);
        return kOkStatus;
      }
      known += (i == 0 ? "" : ", ") + std::string(nameOf(i));
    }
    return fail(Code::kInvalidUsage, "line %u: \"%s\" is \"%s\", not one of %s", object.line(), key,
                text.value().c_str(), known.c_str());
  }

  static Status readRow(const json::Value& object, const Table::Case& of, Table::Row& row) {
    const auto bytes = object.integerAt("bytes", 1, kMostBytes);
    if (!bytes.ok()) return bytes.status();
    const auto algorithm = object.textAt("algorithm", kMostName);
    if (!algorithm.ok()) return algorithm.status();
    const auto protocol = object.textAt("protocol", kMostName);
    if (!protocol.ok()) return protocol.status();
    const auto chunk = object.integerAt("chunk_bytes", 0, kMostChunkBytes);
    if (!chunk.ok()) return chunk.status();
    const auto us = object.numberAt("us", kLeastMicroseconds, kMostMicroseconds);
    if (!us.ok()) return us.status();
    const auto blocks = of.onGpus() ? object.integerAt("blocks", 0, kMostBlocks) : Result<int64_t>(0);
    if (!blocks.ok()) return blocks.status();
    const auto a = algorithmNamed(algorithm.value());
    const auto p = protocolNamed(protocol.value());
    const auto device = of.onGpus() ? algorithms::Device::kCuda : algorithms::Device::kHost;
    row.descriptor =
        a && p && *a != Algorithm::kLocal ? descriptorOf(device, of.collective, *a, *p) : nullptr;
    if (row.descriptor == nullptr) {
      return fail(Code::kInvalidUsage, "line %u: %s has no algorithm \"%s\" with protocol \"%s\"",
                  object.line(), nameOf(of.collective), algorithm.value().c_str(), protocol.value().c_str());
    }
    if (chunk.value() % 64 != 0) {
      return fail(Code::kInvalidUsage, "line %u: \"chunk_bytes\" must be a multiple of 64", object.line());
    }
    row.bytes = static_cast<uint64_t>(bytes.value());
    row.chunkBytes = static_cast<uint32_t>(chunk.value());
    row.blocks = static_cast<uint8_t>(blocks.value());
    row.microseconds = static_cast<float>(us.value());
    return kOkStatus;
  }
};

// Sorts, refuses what is there twice, and hashes.
Status Table::seal() {
  sortStably(entries_, [](const Entry& a, const Entry& b) { return a.of < b.of; });
  const auto twin = std::adjacent_find(entries_.begin(), entries_.end(),
                                       [](const Entry& a, const Entry& b) { return a.of == b.of; });
  if (twin != entries_.end()) {
    return fail(
        Code::kInvalidUsage,
        "the entries of lines %u and %u are for the same case (with a core for every rank, the number "
        "of cores does not tell them apart)",
        twin->line, std::next(twin)->line);
  }
  Hash hash;
  for (const Entry& entry : entries_) {
    hash.add(static_cast<uint64_t>(entry.of.collective) << 48 | static_cast<uint64_t>(entry.of.ranks) << 32 |
             static_cast<uint64_t>(entry.of.cores) << 16 | static_cast<uint64_t>(entry.of.links) << 8 |
             static_cast<uint64_t>(entry.of.reduction) << 4 |
             static_cast<uint64_t>(entry.of.sameProcess) << 1 | static_cast<uint64_t>(entry.of.reach));
    hash.add(entry.of.gpu.data(), entry.of.gpu.size());
    hash.add(entry.of.version.data(), entry.of.version.size());
    hash.add(entry.rows.size());
    for (const Row& row : entry.rows) {
      uint32_t bits = 0;
      std::memcpy(&bits, &row.microseconds, sizeof bits);
      hash.add(row.bytes);
      hash.add(static_cast<uint64_t>(row.blocks) << 16 |
               static_cast<uint64_t>(row.descriptor->algorithm) << 8 |
               static_cast<uint64_t>(row.descriptor->protocol));
      hash.add(static_cast<uint64_t>(row.chunkBytes) << 32 | bits);
    }
  }
  if (hostLinks_.measured) {
    for (const double value : {hostLinks_.hop, hostLinks_.message, hostLinks_.rate, hostLinks_.hostRate}) {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash.add(bits);
    }
  }
  hash_ = hash.value();
  return kOkStatus;
}

Result<Table> Table::parseAll(std::span<const std::string_view> texts) {
  Table table;
  for (const std::string_view text : texts) {
    const auto root = json::parse(text);
    if (!root.ok()) return root.status();
    STRETTO_TRY(TableReader::read(root.value(), table));
  }
  STRETTO_TRY(table.seal());
  return table;
}

Result<Table> Table::parse(std::string_view text) {
  return parseAll({&text, 1});
}

Result<Table> Table::shipped() {
  // Never destroyed: a thread may make a communicator while the process ends.
  static const Result<Table>& read = *new Result<Table>([] {
    Result<Table> table = parseAll(shippedTableTexts());
    if (table.ok()) table.value().origin_ = "shipped";
    return table;
  }());
  return read;
}

Result<Table> Table::load() {
  if (!parameters::kTable.isSet()) return shipped();
  const std::string path = parameters::kTable.text();
  const auto text = json::readFile(path);
  Result<Table> table = text.ok() ? parse(text.value()) : Result<Table>(text.status());
  if (!table.ok()) {
    setLastError(std::string(parameters::kTable.name()) + "=" + path + ": " + lastError());
    return Status{Code::kInvalidUsage};
  }
  table.value().origin_ = path;
  STRETTO_LOG(kInfo, kTuning, "table: %zu entries from %s, hash %016llx", table.value().size(), path.c_str(),
              static_cast<unsigned long long>(table.value().hash()));
  return table;
}

// ---- Finding ----------------------------------------------------------------------------------------------

Table::Case Table::caseOf(const Request& request, const Machine& machine) {
  Case wanted;
  wanted.collective = plannedAs(request.collective);
  wanted.ranks = request.ranks;
  wanted.sameProcess = machine.sameProcess;
  if (!machine.gpu) {
    wanted.cores = coresThatCount(machine.cores, request.ranks);
    wanted.reach = machine.reach;
    return wanted;
  }
  std::copy_n(machine.gpus.name, wanted.gpu.size(), wanted.gpu.begin());
  wanted.links = machine.gpus.links;
  if (reduces(wanted.collective)) {
    wanted.reduction = cuda::isFixed(request.type, request.op) ? Reduction::kFloatSums : Reduction::kOthers;
  }
  wanted.version = arrayOf<sizeof wanted.version>(kLibraryVersion);
  return wanted;
}

const Table::Entry* Table::entryOf(const Case& wanted) const {
  const auto entry = std::lower_bound(entries_.begin(), entries_.end(), wanted,
                                      [](const Entry& e, const Case& c) { return e.of < c; });
  return entry == entries_.end() || entry->of != wanted || entry->rows.empty() ? nullptr : &*entry;
}

const Table::Entry* Table::entryFor(const Request& request, const Machine& machine) const {
  if (machine.hosts > 1) return nullptr;
  Case wanted = caseOf(request, machine);
  if (machine.gpu && !wanted.onGpus()) return nullptr;
  const Entry* entry = entryOf(wanted);
  if (entry != nullptr || !machine.gpu) return entry;
  wanted.sameProcess = !wanted.sameProcess;
  return entryOf(wanted);
}

std::string Table::Case::words() const {
  std::string text = nameOf(collective);
  if (!onGpus()) {
    return text + " between " + std::to_string(ranks) + (sameProcess ? " threads" : " processes") + " on " +
           std::to_string(cores) + " cores";
  }
  if (reduction != Reduction::kNone) text += std::string(" (") + nameIn(kReductions, reduction) + ")";
  return text + " between " + std::to_string(ranks) + " x " + gpu.data() + ", links " + nameOf(links) +
         ", version " + version.data();
}

std::string Table::absenceOf(const Request& request, const Machine& machine) const {
  constexpr size_t kMostNamed = 4;
  const Case wanted = caseOf(request, machine);
  if (machine.hosts > 1) {
    return std::string("the ranks are on several hosts, which no entry of a table is for; ") +
           (machine.hostLinks.measured
                ? "the model has the table's links between hosts"
                : "links between hosts were not measured (stretto tune --hosts), and the "
                  "model has those of TCP over loopback");
  }
  if (machine.gpu && !wanted.onGpus()) return "the ranks are on GPUs of several kinds, which no table is for";
  if (const Entry* entry = entryFor(request, machine); entry != nullptr) {
    return wanted.words() + " was measured from " + std::to_string(entry->rows.front().bytes) + " to " +
           std::to_string(entry->rows.back().bytes) + " bytes only";
  }
  std::string others;
  size_t named = 0;
  for (const Entry& entry : entries_) {
    const bool alike = entry.of.collective == wanted.collective && entry.of.onGpus() == machine.gpu;
    if (!alike || ++named > kMostNamed) continue;
    others += (others.empty() ? "; there is " : "; ") + entry.of.words();
  }
  if (named > kMostNamed) others += "; and " + std::to_string(named - kMostNamed) + " more";
  return "nobody has measured " + wanted.words() + others;
}

Table::Match Table::find(const Request& request, const Machine& machine) const {
  const Entry* const entry = entryFor(request, machine);
  if (entry == nullptr) return {};

  const auto& rows = entry->rows;
  const double bytes = static_cast<double>(request.bytes);
  const auto sizeOf = [](const Row& row) { return static_cast<double>(row.bytes); };
  const auto above = std::lower_bound(rows.begin(), rows.end(), request.bytes,
                                      [](const Row& row, size_t b) { return row.bytes < b; });
  if (above == rows.begin()) {
    if (sizeOf(*above) > kReachOfEnds * bytes) return {};
    return {&*above, nullptr, above->microseconds};
  }
  const auto below = std::prev(above);
  if (above == rows.end()) {
    if (bytes > kReachOfEnds * sizeOf(*below)) return {};
    return {&*below, nullptr, static_cast<float>(below->microseconds * bytes / sizeOf(*below))};
  }
  const double share = (bytes - sizeOf(*below)) / (sizeOf(*above) - sizeOf(*below));
  const double time = below->microseconds + share * (above->microseconds - below->microseconds);
  const bool nearAbove = bytes * bytes >= sizeOf(*below) * sizeOf(*above);
  return {nearAbove ? &*above : &*below, nearAbove ? &*below : &*above, static_cast<float>(time)};
}

}  // namespace stretto::planner
