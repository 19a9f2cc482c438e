// The measured table: for cases that somebody has measured, which algorithm was fastest at which size. It
// overrides the model. One JSON file, "stretto.table/1", written by `stretto tune`:
//
//   {"schema": "stretto.table/1", "machine": {...},
//    "between_hosts": {"hop_us": 6.0, "message_us": 3.0, "bytes_per_us": 1500.0, "host_bytes_per_us":
//    10000.0}, "entries": [
//     {"collective": "all_reduce", "ranks": 2, "cores": 2, "same_process": false, "reach": true,
//      "rows": [
//       {"bytes": 8, "algorithm": "one_shot", "protocol": "ll", "chunk_bytes": 0, "us": 0.41}, ...]},
//     {"collective": "all_reduce", "ranks": 2, "gpu": "NVIDIA H200", "links": "nvlink",
//      "same_process": false, "reduction": "float_sums", "version": "0.1.0",
//      "rows": [
//       {"bytes": 1024, "algorithm": "one_shot", "protocol": "lamport", "chunk_bytes": 0, "blocks": 1,
//        "us": 1.9}, ...]}]}
//
// `bytes` counts as planner::Request does (count times element size); one row per size, the fastest; a
// `chunk_bytes` or `blocks` of 0 leaves it to the planner. `machine` is for people and decides nothing.
// An entry holds for its number of ranks and
//   - between CPU ranks: for the same kind of reach, and for as many cores; when there is a core for every
//     rank, how many more there are does not matter;
//   - between GPUs, which it names: for GPUs and links of that kind, and for the version of the library that
//     it was measured with. Where only processes were measured it serves threads too, and the other way
//     round: the same kernels run over the same links. What reduces has one entry for sums and averages of
//     float32, float16 and bfloat16 ("float_sums") and one for everything else ("others"), because they run
//     in other kernels.
// `between_hosts` (planner::HostLinks) feeds the model where ranks are on several hosts, which no entry is
// for. It may be left out. Where it is there, `entries` may be left out: those that are shipped hold then.
// Immutable once made; any thread may read.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan.hpp"

namespace stretto::planner {

class Table {
 public:
  struct Row {
    uint64_t bytes = 0;
    const algorithms::Descriptor* descriptor = nullptr;
    uint32_t chunkBytes = 0;
    uint8_t blocks = 0;
    float microseconds = 0;
  };
  // Measured neighbours of a request, the nearer one (in log scale) first; null where there is none. Below
  // the first and above the last size, a row serves up to a factor of 4.
  struct Match {
    const Row* nearest = nullptr;
    const Row* other = nullptr;
    float microseconds = 0;  // between the two
  };

  // Refuses (kInvalidUsage, with the line) whatever is not exactly of the schema.
  static Result<Table> parse(std::string_view text);
  // Of the files of tables/, which the library was built with; read once in a process.
  static Result<Table> shipped();
  // STRETTO_TABLE's file if that is set, else the shipped one.
  static Result<Table> load();

  Match find(const Request& request, const Machine& machine) const;
  // Why find() has nothing, for people: what the case would be called, and what was measured instead.
  std::string absenceOf(const Request& request, const Machine& machine) const;
  // Of what decides, in canonical order: equal exactly if two tables plan alike. Ranks compare it.
  uint64_t hash() const { return hash_; }
  size_t size() const { return entries_.size(); }
  const HostLinks& hostLinks() const { return hostLinks_; }
  // "shipped", or the file.
  const std::string& origin() const { return origin_; }

 private:
  enum class Reduction : uint8_t { kNone, kFloatSums, kOthers };
  // Equal exactly for requests that one entry serves. Of CPU ranks gpu and what follows it stay empty, of
  // GPUs cores and reach.
  struct Case {
    Collective collective = Collective::kAllReduce;
    int ranks = 1;
    int cores = 0;
    bool sameProcess = false;
    bool reach = false;
    std::array<char, sizeof Gpus::name> gpu{};
    Links links = Links::kUnknown;
    Reduction reduction = Reduction::kNone;
    std::array<char, 16> version{};

    bool onGpus() const { return gpu[0] != 0; }
    std::string words() const;
    auto operator<=>(const Case&) const = default;
  };
  struct Entry {
    Case of;
    uint32_t line = 0;
    std::vector<Row> rows;  // by bytes; not read where another version measured them
  };
  friend class TableReader;
  static Result<Table> parseAll(std::span<const std::string_view> texts);
  static Case caseOf(const Request& request, const Machine& machine);
  const Entry* entryOf(const Case& wanted) const;
  const Entry* entryFor(const Request& request, const Machine& machine) const;
  Status seal();

  std::vector<Entry> entries_;  // by case
  HostLinks hostLinks_;
  uint64_t hash_ = 0;
  std::string origin_;
};

// Texts of tables/*.json; cmake/tables.cmake generates its definition.
std::span<const std::string_view> shippedTableTexts();

}  // namespace stretto::planner
