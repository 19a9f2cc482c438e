// How much of an operation goes through one block's lines, and how much bare lines hold: said once, because
// the planner chooses by it and the engine refuses by it. Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/registry.hpp"

namespace stretto::algorithms {

// Parts of a message, of which each goes through lines of its own.
constexpr size_t shardsOf(Algorithm algorithm, int ranks) {
  return algorithm == Algorithm::kTwoShot ? static_cast<size_t>(ranks) : 1;
}

// Blocks begin on whole cache lines, and so do shards: what one block has may be so much more than its part.
inline constexpr size_t kShareGrain = 128;

// Bytes of one block's part of a shard that bare lines of `payload` bytes take in one round.
constexpr size_t mostInBareShard(size_t payload) {
  return payload < kShareGrain ? 0 : payload - kShareGrain;
}
// Whether there are more rounds. Each must have lines for every thread: they hold half the payload at least,
// which is 1024 lines of 16 bytes or more, and a block has 512 threads that put them.
constexpr bool hasBareRounds(Collective collective, Algorithm algorithm, int ranks, size_t payload) {
  constexpr size_t kLeastPayload = 32768;
  return collective == Collective::kAllReduce && algorithm == Algorithm::kOneShot && ranks == 2 &&
         payload >= kLeastPayload;
}
// Of an operation of so many blocks and shards.
constexpr size_t mostInBareLines(size_t payload, size_t blocks, Collective collective, Algorithm algorithm,
                                 int ranks) {
  if (hasBareRounds(collective, algorithm, ranks, payload)) return SIZE_MAX;
  return mostInBareShard(payload) * blocks * shardsOf(algorithm, ranks);
}

}  // namespace stretto::algorithms
