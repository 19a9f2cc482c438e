// nccl_driver without an orchestrator: the ranks themselves go through what the command line names, agree on
// how often to measure, and rank 0 prints a JSON line for each result, with the fields of the schema
// "stretto.bench/1".
#pragma once

#include "rank.hpp"

namespace stretto::bench {

// Returns the number of wrong elements, over all ranks and sizes. Every rank calls it.
uint64_t sweep(GpuRank& rank, const Setup& setup);

}  // namespace stretto::bench
