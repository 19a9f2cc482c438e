// What each algorithm costs one rank, counted, of `n` ranks and `bytes` as the collective counts them
// (Arguments::count). For the table (rows.hpp) alone. A host test counts the puts and bytes of every
// algorithm and compares them with its formula.
#pragma once

#include <bit>

#include "algorithms/registry.hpp"

namespace stretto::algorithms::costs {

// Of the binary tree that fills its levels from the root down.
constexpr double depth(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks)) - 1.0;
}

// Depends on who is on which host: the planner adds up the stages (planner/model.hpp).
constexpr Cost ofStages(int, double) {
  return {};
}

constexpr Cost local(int, double bytes) {
  return {0, 0, 2 * bytes};
}

constexpr Cost reduceOneShot(int n, double bytes) {
  return {1, (n - 1) * bytes, (n + 1) * bytes};
}
constexpr Cost reduceTwoShot(int n, double bytes) {
  const double shard = bytes / n;
  return {2, 2 * (n - 1) * shard, (2 * n + 1 + (n - 1)) * shard};
}
// Reads the shard from everybody, then the other results.
constexpr Cost reduceDirect(int n, double bytes) {
  return {3, 2 * (n - 1) * bytes / n, 2 * bytes};
}
// Between two barriers, of which the last one may be left out; two shots have one more, as reduceDirect().
constexpr Cost reducePulled(int n, double bytes) {
  return {2, (n - 1) * bytes, 2 * bytes};
}
constexpr Cost reducePulledNosync(int n, double bytes) {
  return {1, (n - 1) * bytes, 2 * bytes};
}
// Results are written where they are wanted: no barrier between the shots.
constexpr Cost reducePulledPushed(int n, double bytes) {
  return {2, 2 * (n - 1) * bytes / n, 2 * bytes};
}
constexpr Cost reduceDirectNosync(int n, double bytes) {
  return {2, 2 * (n - 1) * bytes / n, 2 * bytes};
}
constexpr Cost reduceRing(int n, double bytes) {
  return {2.0 * (n - 1), 2 * (n - 1) * bytes / n, 4 * (n - 1) * bytes / n};
}
// A rank between two others sends one up and one down; one with two children, from five ranks on, two down.
constexpr Cost reduceTreeBoth(int n, double bytes) {
  return {2 * depth(n), (n > 4 ? 3 : n > 2 ? 2 : 1) * bytes, 4 * bytes};
}

// With residual add and norm: the sums are read once and not written, the residual is read and two results
// are written; what the norm itself takes is the model's to add, as it is the same for all.
constexpr Cost normOneShot(int n, double bytes) {
  return {1, (n - 1) * bytes, (n + 3) * bytes};
}
constexpr Cost normTwoShot(int n, double bytes) {
  const double shard = bytes / n;
  return {2, 2 * (n - 1) * shard, (2 * n - 1) * shard + 3 * bytes};
}
// The same after an all-reduce.
template <Cost (*sum)(int, double)>
constexpr Cost normApart(int n, double bytes) {
  const Cost cost = sum(n, bytes);
  return {cost.hops, cost.wireBytes, cost.localBytes + 4 * bytes};
}

// Per-peer blocks of `bytes`.
constexpr Cost blocksPush(int n, double bytes) {
  return {1, (n - 1) * bytes, 2 * n * bytes};
}
constexpr Cost blocksRing(int n, double bytes) {
  return {n - 1.0, (n - 1) * bytes, 2 * n * bytes};
}
constexpr Cost blocksPairwise(int n, double bytes) {
  return {n - 1.0, (n - 1) * bytes, 2 * n * bytes};
}
constexpr Cost blocksDirect(int n, double bytes) {
  return {2, (n - 1) * bytes, 2 * bytes};
}

constexpr Cost rootedFlat(int n, double bytes) {
  return {1, (n - 1) * bytes, n * bytes};
}
// Everybody waits for everybody.
constexpr Cost rootedPush(int n, double bytes) {
  return {1, (n - 1) * bytes, n * bytes};
}
// The root sends each byte once, and so do the others together.
constexpr Cost rootedTwoShot(int, double bytes) {
  return {2, bytes, 3 * bytes};
}
constexpr Cost rootedTree(int n, double bytes) {
  return {depth(n), (n > 2 ? 2 : 1) * bytes, 3 * bytes};
}
constexpr Cost rootedChain(int n, double bytes) {
  return {n - 1.0, bytes, 3 * bytes};
}
constexpr Cost rootedDirect(int, double bytes) {
  return {2, bytes, bytes};
}

// Copied from buffer to buffer between two barriers. Own blocks are copied at the same time as others.
constexpr Cost blocksCopied(int n, double bytes) {
  return {2, (n - 1) * bytes, 0};
}
constexpr Cost rootedCopied(int n, double bytes) {
  return {2, (n - 1) * bytes, 0};
}
// With two more barriers around the reduction of each chunk, which the model adds.
constexpr Cost reduceCopied(int n, double bytes) {
  return {2, 2 * (n - 1) * bytes / n, (n + 1) * bytes / n};
}

}  // namespace stretto::algorithms::costs
