// What the planner is asked and what it answers. Plain values: a Plan says how one operation will run, and
// why; executors obey it and decide nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "base/status.hpp"
#include "base/types.hpp"

namespace stretto::planner {

using algorithms::Algorithm;
using algorithms::Protocol;

struct Request {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  size_t bytes = 0;  // as the collective counts them: Arguments::count times the element's size
  int ranks = 1;
};

// What is the same for every operation of a communicator. Equal on all ranks.
struct Machine {
  int cores = 1;               // cores the ranks of this host share
  bool sameProcess = false;    // all ranks are threads of one process
  bool reach = false;          // every rank can read every peer's ordinary memory
  bool deterministic = false;  // STRETTO_DETERMINISTIC: only algorithms that reduce in rank order
  size_t slotBytes = 0;
  size_t linkChunk = 0;
  size_t cacheBytes = 0;  // last-level cache: larger results are written past it
};

enum class Why : uint8_t { kOnlyOne, kModel, kTable, kForced };

struct Plan {
  Algorithm algorithm = Algorithm::kLocal;
  Protocol protocol = Protocol::kChunks;
  Why why = Why::kModel;
  uint8_t rings = 1;
  uint32_t chunkBytes = 0;
  bool stream = false;
  float predictedMicroseconds = 0;
};

// One row of an explanation: a candidate, its predicted time, or why it cannot run.
struct Candidate {
  Plan plan;
  bool possible = false;
  std::string reason;
};

}  // namespace stretto::planner
