// Several ways to run one operation, measured against each other within one process: each is recorded once,
// as a graph of many calls, and then the graphs are replayed in turns, so that what the machine is like at
// the moment is the same for all. Used by session.hpp; every rank calls it.
#pragma once

#include "rank.hpp"

namespace stretto::bench {

// One way, and how it did.
struct Entrant {
  Forced forced;              // no algorithm: the planner's choice
  std::vector<double> turns;  // median microseconds of the slowest rank, one for each turn that it was in
  uint64_t wrong = 0;         // elements of this rank's results
  std::string refusal;        // why it cannot run; then nothing else is set
  size_t batch = 1;
  size_t replays = 1;
  Recorded recorded;
};

// `drop`: after the first turn those that take longer than the fastest times this are out; 0: nobody is.
struct Rules {
  size_t rounds = 1;
  double turnMicroseconds = 1000;
  double drop = 0;
};

void compete(GpuRank& rank, const Request& request, const Rules& rules, std::vector<Entrant>& entrants);

}  // namespace stretto::bench
