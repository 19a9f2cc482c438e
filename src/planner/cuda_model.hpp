// The planner's model of the CUDA backend: how many blocks an operation gets, and how long it takes. Pure
// functions of plain values; used by the planner only. The constants were measured between two H200s
// (docs/results/); a measured table overrides what they predict.
#pragma once

#include "planner/model.hpp"

namespace stretto::planner {

// Of an all-reduce with RMSNorm: whether the norm is a pass of its own, always or for so many tokens.
bool normIsApart(const Descriptor& row, const Request& request, const Machine& machine);

// Blocks that the model prefers, as many as the protocol has channels at most; machine.blocks if that is set.
int preferredBlocks(const Descriptor& row, const Request& request, const Machine& machine);

// Most bytes of an operation that all blocks together carry in Lamport lines, which do not take turns but
// between two ranks.
size_t mostInLamportLines(const Descriptor& row, const Request& request, const Machine& machine);

// Bytes of a chunk that goes in warp chunks: as many as they hold, and as many as are best.
size_t mostInWarpChunks(const Descriptor& row, const Request& request, const Machine& machine);
size_t preferredInWarpChunks(const Descriptor& row, const Request& request, const Machine& machine);

// Bytes of a shard that are copied at once, while what was copied before them is reduced.
size_t preferredCopy(const Descriptor& row, const Request& request);

// Microseconds from launch to launch of the same operation in a graph.
double predictCuda(const Descriptor& row, const Request& request, const Machine& machine);

}  // namespace stretto::planner
