// How much of an operation goes through one block's lines, and how much Lamport lines hold: said once,
// because the planner chooses by it and the engine refuses by it. Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/registry.hpp"
#include "algorithms/shape.hpp"
#include "primitives/operation.hpp"

namespace stretto::algorithms {

// Parts of a message, of which each goes through lines of its own.
constexpr size_t shardsOf(Algorithm algorithm, int ranks) {
  return algorithm == Algorithm::kTwoShot ? static_cast<size_t>(ranks) : 1;
}

// Blocks begin on whole cache lines, and so do shards: what one block has may be so much more than its part.
inline constexpr size_t kShareGrain = 128;

// An operation as it is cut among so many shares, of blocks or of warps; with a norm, in whole tokens.
constexpr Arguments withShares(Arguments arguments, int shares) {
  const size_t grain = arguments.norm != nullptr ? arguments.norm->hidden
                                                 : std::max<size_t>(1, kShareGrain / arguments.elementBytes);
  arguments.largest = Split(arguments.count, static_cast<size_t>(std::max(1, shares)), grain).each();
  return arguments;
}

// Bytes of one block's part of a shard that Lamport lines of `payload` bytes take in one round.
constexpr size_t mostInLamportShard(size_t payload) {
  return payload < kShareGrain ? 0 : payload - kShareGrain;
}
// Threads of a block that put Lamport lines, one of 16 bytes each at a time.
inline constexpr size_t kMostLamportThreads = 1024;
// Whether there are more rounds. Each holds half the payload at least, which must be three lines for each
// thread of some warps, and is so many that half of all or more take part.
constexpr bool hasLamportSteps(Collective collective, Algorithm algorithm, int ranks, size_t payload) {
  const bool trades = (collective == Collective::kAllReduce && algorithm == Algorithm::kOneShot) ||
                      (collective == Collective::kReduceScatter && algorithm == Algorithm::kPush);
  return trades && ranks == 2 && payload >= 2 * 16 * kMostLamportThreads;
}
// Of an operation of so many blocks, in one round; in all. With a norm a round is of whole tokens, and there
// are as many as it takes.
constexpr size_t mostInLamportStep(size_t payload, size_t blocks, Algorithm algorithm, int ranks) {
  return mostInLamportShard(payload) * blocks * shardsOf(algorithm, ranks);
}
constexpr size_t mostInLamportLines(size_t payload, size_t blocks, Collective collective, Algorithm algorithm,
                                    int ranks) {
  if (collective == Collective::kAllReduceAddRmsNorm) return SIZE_MAX;
  if (hasLamportSteps(collective, algorithm, ranks, payload)) return SIZE_MAX;
  return mostInLamportStep(payload, blocks, algorithm, ranks);
}

}  // namespace stretto::algorithms
