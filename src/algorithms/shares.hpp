// How much of an operation goes through one block's lines, and how much bare lines hold: said once, because
// the planner chooses by it and the engine refuses by it. Plain C++.
#pragma once

#include <cstddef>

#include "algorithms/registry.hpp"

namespace stretto::algorithms {

// Parts of a message, of which each goes through lines of its own.
constexpr size_t shardsOf(Algorithm algorithm, int ranks) {
  return algorithm == Algorithm::kTwoShot ? static_cast<size_t>(ranks) : 1;
}

// Blocks begin on whole cache lines, and so do shards: what one block has may be so much more than its part.
inline constexpr size_t kShareGrain = 128;

// Bytes of one block's part of a shard that bare lines of `payload` bytes take: there is no second round.
constexpr size_t mostInBareShard(size_t payload) {
  return payload < kShareGrain ? 0 : payload - kShareGrain;
}
// Of an operation of so many blocks and shards.
constexpr size_t mostInBareLines(size_t payload, size_t blocks, size_t shards) {
  return mostInBareShard(payload) * blocks * shards;
}

}  // namespace stretto::algorithms
