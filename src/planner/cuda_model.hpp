// The planner's model of the CUDA backend: how many blocks an operation gets, and how long it takes. Pure
// functions of plain values; used by the planner only. The constants were measured between two H200s
// (docs/results/); a measured table overrides what they predict.
#pragma once

#include "algorithms/token_cut.hpp"
#include "planner/model.hpp"

namespace stretto::planner {

using algorithms::NormForm;

// How a plan cuts an operation.
struct Cut {
  int blocks = 1;
  size_t chunkBytes = SIZE_MAX;
};
// Of an all-reduce with RMSNorm that is cut so: what the engine makes of it, if all buffers are aligned.
NormForm normFormOf(const Descriptor& row, const Request& request, const Machine& machine, Cut cut);

// Blocks that the model prefers, as many as the protocol has channels at most; machine.blocks if that is set.
int preferredBlocks(const Descriptor& row, const Request& request, const Machine& machine);

// Most bytes of an operation that all blocks together carry in Lamport lines: any number where these go in
// turns.
size_t mostInLamportLines(const Descriptor& row, const Request& request, const Machine& machine);

// Bytes of a chunk that goes in warp chunks: as many as they hold, and as many as are best.
size_t mostInWarpChunks(const Descriptor& row, const Request& request, const Machine& machine);
size_t preferredInWarpChunks(const Descriptor& row, const Request& request, const Machine& machine);

// Bytes of a shard that are copied at once, while what was copied before them is reduced.
size_t preferredCopy(const Descriptor& row, const Request& request);

// Microseconds from launch to launch of the same operation in a graph.
double predictCuda(const Descriptor& row, const Request& request, const Machine& machine,
                   uint32_t chunkBytes);

}  // namespace stretto::planner
