// The measured table: for cases that somebody has measured, which algorithm was fastest at which size. It
// overrides the model. One JSON file, "stretto.table/1", written by `stretto tune`:
//
//   {"schema": "stretto.table/1", "machine": {...}, "entries": [
//     {"collective": "all_reduce", "ranks": 2, "cores": 2, "same_process": false, "reach": true, "rows": [
//       {"bytes": 8, "algorithm": "one_shot", "protocol": "lines", "chunk_bytes": 0, "us": 0.41}, ...]}]}
//
// `bytes` counts as planner::Request does (count times element size); one row per size, the fastest; a
// `chunk_bytes` of 0 leaves the chunk to the planner. `machine` is for people and does not decide anything.
// An entry holds for its number of ranks, for the same kind of reach, and for as many cores; when there is a
// core for every rank, how many more there are does not matter. Immutable once made; any thread may read.
#pragma once

#include <cstdint>
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
  // The one that the library was built with.
  static Result<Table> shipped();
  // STRETTO_TABLE's file if that is set, else the shipped one.
  static Result<Table> load();

  Match find(const Request& request, const Machine& machine) const;
  // Of what decides, in canonical order: equal exactly if two tables plan alike. Ranks compare it.
  uint64_t hash() const { return hash_; }
  size_t size() const { return entries_.size(); }
  // "shipped", or the file.
  const std::string& origin() const { return origin_; }

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t line = 0;
    std::vector<Row> rows;  // by bytes
  };
  friend class TableReader;
  void seal();

  std::vector<Entry> entries_;  // by key
  uint64_t hash_ = 0;
  std::string origin_;
};

// Text of tables/host.json; cmake/tables.cmake generates its definition.
std::string_view shippedTableText();

}  // namespace stretto::planner
