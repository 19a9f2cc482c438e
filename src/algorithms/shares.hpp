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

// An operation as it is cut among so many shares, of blocks or of warps, in multiples of `bytes`; with a
// norm, in whole tokens.
constexpr Arguments withShares(Arguments arguments, int shares, size_t bytes = kShareGrain) {
  const size_t grain = arguments.norm != nullptr ? arguments.norm->hidden
                                                 : std::max<size_t>(1, bytes / arguments.elementBytes);
  arguments.largest = Split(arguments.count, static_cast<size_t>(std::max(1, shares)), grain).each();
  return arguments;
}

// Bytes of one block's part of a shard that Lamport lines of `payload` bytes take in one round.
constexpr size_t mostInLamportShard(size_t payload) {
  return payload < kShareGrain ? 0 : payload - kShareGrain;
}
// Threads of a block that put Lamport lines between two ranks, one of 16 bytes each at a time.
inline constexpr size_t kMostLamportThreads = 1024;
// Among so many ranks there are kernels whose threads put and read Lamport lines in turns.
constexpr bool takesTurns(int ranks) {
  return ranks == 2 || ranks == 4 || ranks == 8;
}
// What a block's share of them is a multiple of. Two-shots of which all shards are equal are the fastest.
constexpr size_t shareGrainOf(Algorithm algorithm, Protocol protocol, int ranks) {
  constexpr size_t kShardGrain = 64;
  const bool inTurns = protocol == Protocol::kLamport && takesTurns(ranks);
  return inTurns ? std::max(kShareGrain, kShardGrain * shardsOf(algorithm, ranks)) : kShareGrain;
}
// Whether an operation that one round does not hold goes in several. Rounds are cut evenly, so each holds
// half the payload or more, and every thread that takes part must have three lines in it. The payload must
// be large enough for one warp, or between two ranks for a third of all threads.
constexpr bool hasLamportSteps(Collective collective, Algorithm algorithm, int ranks, size_t payload) {
  constexpr size_t kLine = 16, kLeastThreads = 32, kLeastLines = 3;
  const bool sums = collective == Collective::kAllReduce ||
                    (collective == Collective::kReduceScatter && algorithm == Algorithm::kPush);
  const bool inShots = algorithm == Algorithm::kOneShot || algorithm == Algorithm::kPush ||
                       (algorithm == Algorithm::kTwoShot && ranks != 2);
  const size_t round = kLine * (ranks == 2 ? kMostLamportThreads : kLeastThreads * kLeastLines);
  return sums && inShots && takesTurns(ranks) && payload >= 2 * round;
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
