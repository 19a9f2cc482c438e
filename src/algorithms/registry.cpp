#include "algorithms/registry.hpp"

#include <cmath>

#include "primitives/window.hpp"

namespace stretto::algorithms {
namespace {

constexpr size_t kLineLimit = WindowLayout::kMostLinePayload;

// Of the binary tree that fills its levels from the root down.
double depth(int ranks) {
  return std::floor(std::log2(static_cast<double>(ranks)));
}

Cost local(int, double bytes) {
  return {0, 0, 2 * bytes};
}

Cost reduceOneShot(int n, double bytes) {
  return {1, (n - 1) * bytes, (n + 1) * bytes};
}
Cost reduceTwoShot(int n, double bytes) {
  const double shard = bytes / n;
  return {2, 2 * (n - 1) * shard, (2 * n + 1 + (n - 1)) * shard};
}
// Reads the shard from everybody, then the other results.
Cost reduceDirect(int n, double bytes) {
  return {3, 2 * (n - 1) * bytes / n, 2 * bytes};
}
// Between two barriers, of which the last one may be left out; two shots have one more, as reduceDirect().
Cost reducePulled(int n, double bytes) {
  return {2, (n - 1) * bytes, 2 * bytes};
}
Cost reducePulledNosync(int n, double bytes) {
  return {1, (n - 1) * bytes, 2 * bytes};
}
// Results are written where they are wanted: no barrier between the shots.
Cost reducePulledPushed(int n, double bytes) {
  return {2, 2 * (n - 1) * bytes / n, 2 * bytes};
}
Cost reduceDirectNosync(int n, double bytes) {
  return {2, 2 * (n - 1) * bytes / n, 2 * bytes};
}
Cost reduceRing(int n, double bytes) {
  return {2.0 * (n - 1), 2 * (n - 1) * bytes / n, 4 * (n - 1) * bytes / n};
}
// A rank between two others sends one up and one down; one with two children, from five ranks on, two down.
Cost reduceTreeBoth(int n, double bytes) {
  return {2 * depth(n), (n > 4 ? 3 : n > 2 ? 2 : 1) * bytes, 4 * bytes};
}

// Per-peer blocks of `bytes`.
Cost blocksPush(int n, double bytes) {
  return {1, (n - 1) * bytes, 2 * n * bytes};
}
Cost blocksRing(int n, double bytes) {
  return {n - 1.0, (n - 1) * bytes, 2 * n * bytes};
}
Cost blocksPairwise(int n, double bytes) {
  return {n - 1.0, (n - 1) * bytes, 2 * n * bytes};
}
Cost blocksDirect(int n, double bytes) {
  return {2, (n - 1) * bytes, 2 * bytes};
}

Cost rootedFlat(int n, double bytes) {
  return {1, (n - 1) * bytes, n * bytes};
}
// Everybody waits for everybody.
Cost rootedPush(int n, double bytes) {
  return {1, (n - 1) * bytes, n * bytes};
}
// The root sends each byte once, and so do the others together.
Cost rootedTwoShot(int, double bytes) {
  return {2, bytes, 3 * bytes};
}
Cost rootedTree(int n, double bytes) {
  return {depth(n), (n > 2 ? 2 : 1) * bytes, 3 * bytes};
}
Cost rootedChain(int n, double bytes) {
  return {n - 1.0, bytes, 3 * bytes};
}
Cost rootedDirect(int, double bytes) {
  return {2, bytes, bytes};
}

// Copied from buffer to buffer between two barriers. Own blocks are copied at the same time as others.
Cost blocksCopied(int n, double bytes) {
  return {2, (n - 1) * bytes, 0};
}
Cost rootedCopied(int n, double bytes) {
  return {2, (n - 1) * bytes, 0};
}
// With two more barriers around the reduction of each chunk, which the model adds.
Cost reduceCopied(int n, double bytes) {
  return {2, 2 * (n - 1) * bytes / n, (n + 1) * bytes / n};
}

using C = Collective;
using A = Algorithm;
using P = Protocol;

// First those of the host alone, then those that run everywhere, last those of CUDA alone. There are rooted
// collectives as exchanges among the last: on a host their root would wait for everybody.
constexpr Descriptor kRows[] = {
    {C::kAllReduce, A::kDirect, P::kChunks, true, true, 0, reduceDirect},
    {C::kReduceScatter, A::kDirect, P::kChunks, true, true, 0, blocksDirect},
    {C::kAllGather, A::kDirect, P::kChunks, true, true, 0, blocksDirect},
    {C::kAllToAll, A::kDirect, P::kChunks, true, true, 0, blocksDirect},
    {C::kBroadcast, A::kDirect, P::kChunks, true, true, 0, rootedDirect},

    {C::kAllReduce, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kAllReduce, A::kOneShot, P::kLines, true, false, kLineLimit, reduceOneShot},
    {C::kAllReduce, A::kOneShot, P::kChunks, true, false, 0, reduceOneShot},
    {C::kAllReduce, A::kTwoShot, P::kLines, true, false, kLineLimit, reduceTwoShot},
    {C::kAllReduce, A::kTwoShot, P::kChunks, true, false, 0, reduceTwoShot},
    {C::kAllReduce, A::kRing, P::kChunks, false, false, 0, reduceRing},
    {C::kAllReduce, A::kTree, P::kChunks, false, false, 0, reduceTreeBoth},
    {C::kReduceScatter, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kReduceScatter, A::kPush, P::kLines, true, false, kLineLimit, blocksPush},
    {C::kReduceScatter, A::kPush, P::kChunks, true, false, 0, blocksPush},
    {C::kReduceScatter, A::kRing, P::kChunks, false, false, 0, blocksRing},
    {C::kAllGather, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kAllGather, A::kPush, P::kLines, true, false, kLineLimit, blocksPush},
    {C::kAllGather, A::kPush, P::kChunks, true, false, 0, blocksPush},
    {C::kAllGather, A::kRing, P::kChunks, true, false, 0, blocksRing},
    {C::kAllToAll, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kAllToAll, A::kPush, P::kLines, true, false, kLineLimit, blocksPush},
    {C::kAllToAll, A::kPush, P::kChunks, true, false, 0, blocksPush},
    {C::kAllToAll, A::kPairwise, P::kChunks, true, false, 0, blocksPairwise},
    {C::kBroadcast, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kBroadcast, A::kFlat, P::kChunks, true, false, 0, rootedFlat},
    {C::kBroadcast, A::kTree, P::kChunks, true, false, 0, rootedTree},
    {C::kBroadcast, A::kChain, P::kChunks, true, false, 0, rootedChain},
    {C::kReduce, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kReduce, A::kFlat, P::kChunks, true, false, 0, rootedFlat},
    {C::kReduce, A::kTree, P::kChunks, false, false, 0, rootedTree},
    {C::kReduce, A::kChain, P::kChunks, false, false, 0, rootedChain},
    {C::kGather, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kGather, A::kFlat, P::kChunks, true, false, 0, rootedFlat},
    {C::kScatter, A::kLocal, P::kChunks, true, false, 0, local},
    {C::kScatter, A::kFlat, P::kChunks, true, false, 0, rootedFlat},
    {C::kSend, A::kFlat, P::kChunks, true, false, 0, rootedFlat},
    {C::kReceive, A::kFlat, P::kChunks, true, false, 0, rootedFlat},

    {C::kBroadcast, A::kPush, P::kLines, true, false, kLineLimit, rootedPush},
    {C::kBroadcast, A::kTwoShot, P::kLines, true, false, kLineLimit, rootedTwoShot},
    {C::kBroadcast, A::kTwoShot, P::kWide, true, false, kLineLimit, rootedTwoShot},
    {C::kBroadcast, A::kTwoShot, P::kRuns, true, false, kLineLimit, rootedTwoShot},
    {C::kReduce, A::kPush, P::kLines, true, false, kLineLimit, rootedPush},
    {C::kReduce, A::kTwoShot, P::kLines, true, false, kLineLimit, rootedTwoShot},
    {C::kReduce, A::kTwoShot, P::kWide, true, false, kLineLimit, rootedTwoShot},
    {C::kReduce, A::kTwoShot, P::kRuns, true, false, kLineLimit, rootedTwoShot},
    {C::kGather, A::kPush, P::kLines, true, false, kLineLimit, rootedPush},
    {C::kScatter, A::kPush, P::kLines, true, false, kLineLimit, rootedPush},
    {C::kAllReduce, A::kOneShot, P::kWide, true, false, kLineLimit, reduceOneShot},
    {C::kAllReduce, A::kOneShot, P::kRuns, true, false, kLineLimit, reduceOneShot},
    {C::kAllReduce, A::kOneShot, P::kBare, true, false, kLineLimit, reduceOneShot},
    {C::kAllReduce, A::kTwoShot, P::kWide, true, false, kLineLimit, reduceTwoShot},
    {C::kAllReduce, A::kTwoShot, P::kRuns, true, false, kLineLimit, reduceTwoShot},
    {C::kAllReduce, A::kTwoShot, P::kBare, true, false, kLineLimit, reduceTwoShot},
    {C::kReduceScatter, A::kPush, P::kBare, true, false, kLineLimit, blocksPush},
    {C::kReduceScatter, A::kPush, P::kWide, true, false, kLineLimit, blocksPush},
    {C::kReduceScatter, A::kPush, P::kRuns, true, false, kLineLimit, blocksPush},
    {C::kAllGather, A::kPush, P::kWide, true, false, kLineLimit, blocksPush},
    {C::kAllGather, A::kPush, P::kRuns, true, false, kLineLimit, blocksPush},
    {C::kBroadcast, A::kPush, P::kWide, true, false, kLineLimit, rootedPush},
    {C::kBroadcast, A::kPush, P::kRuns, true, false, kLineLimit, rootedPush},
    {C::kReduce, A::kPush, P::kWide, true, false, kLineLimit, rootedPush},
    {C::kReduce, A::kPush, P::kRuns, true, false, kLineLimit, rootedPush},
    {C::kGather, A::kPush, P::kWide, true, false, kLineLimit, rootedPush},
    {C::kGather, A::kPush, P::kRuns, true, false, kLineLimit, rootedPush},
    {C::kScatter, A::kPush, P::kWide, true, false, kLineLimit, rootedPush},
    {C::kScatter, A::kPush, P::kRuns, true, false, kLineLimit, rootedPush},
    {C::kAllToAll, A::kPush, P::kWide, true, false, kLineLimit, blocksPush},
    {C::kAllToAll, A::kPush, P::kRuns, true, false, kLineLimit, blocksPush},
    {C::kAllReduce, A::kTwoShot, P::kCopy, true, false, 0, reduceCopied},
    {C::kAllGather, A::kPush, P::kCopy, true, false, 0, blocksCopied},
    {C::kAllToAll, A::kPush, P::kCopy, true, false, 0, blocksCopied},
    {C::kBroadcast, A::kPush, P::kCopy, true, false, 0, rootedCopied},
    {C::kAllReduce, A::kOneShot, P::kPull, true, false, 0, reducePulled},
    {C::kAllReduce, A::kTwoShot, P::kPull, true, false, 0, reduceDirect},
    {C::kAllReduce, A::kOneShot, P::kPullNosync, true, false, 0, reducePulledNosync},
    {C::kAllReduce, A::kTwoShot, P::kPullNosync, true, false, 0, reduceDirectNosync},
    {C::kAllReduce, A::kTwoShot, P::kPullPush, true, false, 0, reducePulledPushed},
    {C::kAllReduce, A::kTwoShot, P::kPullBulk, true, false, 0, reducePulledPushed},
};
constexpr size_t kHostOnly = 5;
constexpr size_t kCudaOnly = 41;

// As much is sent as by rings that reduce; what is read is less.
constexpr Descriptor kUnreducedRows[] = {
    {C::kAllReduce, A::kUnreducedRing, P::kChunks, false, false, 0, reduceRing},
    {C::kReduceScatter, A::kUnreducedRing, P::kChunks, false, false, 0, blocksRing},
};

}  // namespace

const char* nameOf(Algorithm algorithm) {
  constexpr const char* kNames[kAlgorithms] = {"local", "one_shot", "two_shot",      "direct",
                                               "ring",  "tree",     "chain",         "flat",
                                               "push",  "pairwise", "unreduced_ring"};
  return kNames[static_cast<int>(algorithm)];
}

const char* nameOf(Directions directions) {
  return directions == Directions::kBothWays ? "both_ways" : "one_way";
}

const char* nameOf(Protocol protocol) {
  constexpr const char* kNames[kProtocols] = {"lines", "chunks", "wide",        "bare",      "runs",
                                              "copy",  "pull",   "pull_nosync", "pull_push", "pull_bulk"};
  return kNames[static_cast<int>(protocol)];
}

// The row's is one way: n - 1 hops gather. Both ways blocks have half as far to go, rounded up.
Cost costOf(const Descriptor& row, int ranks, double bytes, Directions directions) {
  Cost cost = row.cost(ranks, bytes);
  if (gathersAlongRing(row) && directions == Directions::kBothWays) cost.hops -= (ranks - 1) / 2;
  return cost;
}

std::span<const Descriptor> descriptors(Device device) {
  const std::span all(kRows);
  return device == Device::kHost ? all.first(all.size() - kCudaOnly) : all.subspan(kHostOnly);
}

std::span<const Descriptor> allDescriptors() {
  return kRows;
}

std::span<const Descriptor> unreducedDescriptors() {
  return kUnreducedRows;
}

}  // namespace stretto::algorithms
