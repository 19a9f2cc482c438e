#include "planner/table.hpp"

#include <algorithm>
#include <cstring>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/parameters.hpp"
#include "planner/names.hpp"
#include "primitives/window.hpp"

namespace stretto::planner {
namespace {

constexpr const char* kSchema = "stretto.table/1";
constexpr size_t kMostEntries = 10000;
constexpr size_t kMostRows = 1000;
constexpr size_t kMostName = 64;
constexpr int64_t kMostCores = 8192;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostChunk = int64_t{1} << 30;
constexpr double kLeastMicroseconds = 1e-3;
constexpr double kMostMicroseconds = 1e9;
constexpr uint64_t kReachOfEnds = 4;

struct Case {
  Collective collective = Collective::kAllReduce;
  int ranks = 1;
  int cores = 1;
  bool sameProcess = false;
  bool reach = false;
};

// Equal exactly for requests that one entry serves. With a core for every rank, further cores are the same.
uint64_t keyOf(const Case& c) {
  const uint64_t cores = static_cast<uint64_t>(std::clamp(c.cores, 0, c.ranks));
  return static_cast<uint64_t>(plannedAs(c.collective)) << 32 | static_cast<uint64_t>(c.ranks) << 16 |
         cores << 2 | static_cast<uint64_t>(c.sameProcess) << 1 | static_cast<uint64_t>(c.reach);
}

// FNV-1a, with a last mix so that every bit of the result depends on every byte.
class Hash {
 public:
  void add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      state_ = (state_ ^ (value >> shift & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const {
    const uint64_t mixed = (state_ ^ state_ >> 32) * 0xd6e8feb86659fd93;
    return mixed ^ mixed >> 32;
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

const algorithms::Descriptor* descriptorOf(Collective collective, Algorithm algorithm, Protocol protocol) {
  for (const auto& row : algorithms::allDescriptors()) {
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
    if (schema.value() != kSchema) {
      return fail(Code::kInvalidUsage, "the schema is \"%s\", not \"%s\"", schema.value().c_str(), kSchema);
    }
    const json::Value* machine = root.find("machine");
    if (machine == nullptr || machine->kind() != json::Kind::kObject) {
      return fail(Code::kInvalidUsage, "line %u: \"machine\" must be an object", root.line());
    }
    const auto entries = root.itemsAt("entries", json::Kind::kObject, kMostEntries);
    if (!entries.ok()) return entries.status();
    for (const json::Value& entry : entries.value()) {
      STRETTO_TRY(readEntry(entry, table.entries_.emplace_back()));
    }
    return kOkStatus;
  }

 private:
  static Status readEntry(const json::Value& object, Table::Entry& entry) {
    Case found;
    STRETTO_TRY(readCase(object, found));
    const auto rows = object.itemsAt("rows", json::Kind::kObject, kMostRows);
    if (!rows.ok()) return rows.status();
    entry.key = keyOf(found);
    entry.line = object.line();
    for (const json::Value& row : rows.value()) {
      STRETTO_TRY(readRow(row, found.collective, entry.rows.emplace_back()));
    }
    std::sort(entry.rows.begin(), entry.rows.end(),
              [](const Table::Row& a, const Table::Row& b) { return a.bytes < b.bytes; });
    const auto twin = std::adjacent_find(entry.rows.begin(), entry.rows.end(),
                                         [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
    if (twin == entry.rows.end()) return kOkStatus;
    return fail(Code::kInvalidUsage, "line %u: two rows of this entry have %llu bytes", object.line(),
                static_cast<unsigned long long>(twin->bytes));
  }

  static Status readCase(const json::Value& object, Case& found) {
    const auto name = object.textAt("collective", kMostName);
    if (!name.ok()) return name.status();
    const auto collective = collectiveNamed(name.value());
    if (!collective || *collective == Collective::kReceive) {
      return fail(Code::kInvalidUsage, "line %u: \"%s\" is no collective of a table (receive goes by send)",
                  object.line(), name.value().c_str());
    }
    const auto ranks = object.integerAt("ranks", 2, kMaxRanks);
    if (!ranks.ok()) return ranks.status();
    const auto cores = object.integerAt("cores", 1, kMostCores);
    if (!cores.ok()) return cores.status();
    const auto sameProcess = object.booleanAt("same_process");
    if (!sameProcess.ok()) return sameProcess.status();
    const auto reach = object.booleanAt("reach");
    if (!reach.ok()) return reach.status();
    found = {*collective, static_cast<int>(ranks.value()), static_cast<int>(cores.value()),
             sameProcess.value(), reach.value()};
    return kOkStatus;
  }

  static Status readRow(const json::Value& object, Collective collective, Table::Row& row) {
    const auto bytes = object.integerAt("bytes", 1, kMostBytes);
    if (!bytes.ok()) return bytes.status();
    const auto algorithm = object.textAt("algorithm", kMostName);
    if (!algorithm.ok()) return algorithm.status();
    const auto protocol = object.textAt("protocol", kMostName);
    if (!protocol.ok()) return protocol.status();
    const auto chunk = object.integerAt("chunk_bytes", 0, kMostChunk);
    if (!chunk.ok()) return chunk.status();
    const auto us = object.numberAt("us", kLeastMicroseconds, kMostMicroseconds);
    if (!us.ok()) return us.status();
    const auto a = algorithmNamed(algorithm.value());
    const auto p = protocolNamed(protocol.value());
    row.descriptor = a && p && *a != Algorithm::kLocal ? descriptorOf(collective, *a, *p) : nullptr;
    if (row.descriptor == nullptr) {
      return fail(Code::kInvalidUsage, "line %u: %s has no algorithm \"%s\" with protocol \"%s\"",
                  object.line(), nameOf(collective), algorithm.value().c_str(), protocol.value().c_str());
    }
    if (chunk.value() % 64 != 0) {
      return fail(Code::kInvalidUsage, "line %u: \"chunk_bytes\" must be a multiple of 64", object.line());
    }
    row.bytes = static_cast<uint64_t>(bytes.value());
    row.chunkBytes = static_cast<uint32_t>(chunk.value());
    row.microseconds = static_cast<float>(us.value());
    return kOkStatus;
  }
};

void Table::seal() {
  Hash hash;
  for (const Entry& entry : entries_) {
    hash.add(entry.key);
    hash.add(entry.rows.size());
    for (const Row& row : entry.rows) {
      uint32_t bits = 0;
      std::memcpy(&bits, &row.microseconds, sizeof bits);
      hash.add(row.bytes);
      hash.add(static_cast<uint64_t>(row.descriptor->algorithm) << 8 |
               static_cast<uint64_t>(row.descriptor->protocol));
      hash.add(static_cast<uint64_t>(row.chunkBytes) << 32 | bits);
    }
  }
  hash_ = hash.value();
}

Result<Table> Table::parse(std::string_view text) {
  const auto root = json::parse(text);
  if (!root.ok()) return root.status();
  Table table;
  STRETTO_TRY(TableReader::read(root.value(), table));
  std::stable_sort(table.entries_.begin(), table.entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  const auto twin = std::adjacent_find(table.entries_.begin(), table.entries_.end(),
                                       [](const Entry& a, const Entry& b) { return a.key == b.key; });
  if (twin != table.entries_.end()) {
    return fail(
        Code::kInvalidUsage,
        "the entries of lines %u and %u are for the same case (with a core for every rank, the number "
        "of cores does not tell them apart)",
        twin->line, std::next(twin)->line);
  }
  table.seal();
  return table;
}

Result<Table> Table::shipped() {
  Result<Table> table = parse(shippedTableText());
  if (table.ok()) table.value().origin_ = "shipped";
  return table;
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

Table::Match Table::find(const Request& request, const Machine& machine) const {
  const uint64_t key =
      keyOf({request.collective, request.ranks, machine.cores, machine.sameProcess, machine.reach});
  const auto entry = std::lower_bound(entries_.begin(), entries_.end(), key,
                                      [](const Entry& e, uint64_t k) { return e.key < k; });
  if (entry == entries_.end() || entry->key != key || entry->rows.empty()) return {};

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
