// What an algorithm is given: one collective, validated, with its buffers, and the few numbers of its plan
// that it needs. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace stretto {

// Element-wise reduction: sources are combined in rank order, 16- and 8-bit floats in fp32. `divisor` is
// applied once, at the end (kAvg).
struct ReduceSpec {
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  uint32_t divisor = 1;
};

// How an 8-bit copy of normalised tokens is scaled.
enum class Scaling : uint8_t {
  kNone,       // there is no such copy
  kPerToken,   // each token by its largest element; the scales are a result
  kPerTensor,  // all by one scale, which is given
};

// What ranks agree on of it beside numbers: plain bytes, as they are announced to peers.
struct NormMode {
  Scaling scaling;
  DataType quantised;  // nothing unless there is scaling
  uint8_t hasResidual;
  uint8_t hasBias;
};

// What an all-reduce with residual add and RMSNorm has beside the sum that it begins with (include/stretto.h,
// strettoAllReduceAddRmsNorm). Tokens of `hidden` elements lie one after the other; a place that is null is
// not there. Left as it is found by whoever makes one: no operation but this one pays for it.
struct NormArguments {
  size_t hidden;
  const std::byte* residual;  // added to the sum,
  const std::byte* bias;      // and one token that is added to each
  const std::byte* gamma;     // one token
  std::byte* residualOut;     // never null
  std::byte* normalised;
  std::byte* reduced;  // the sum itself
  std::byte* quantised;
  float* scales;
  float epsilon;
  Scaling scaling;
  DataType quantisedType;
};

// `count` follows NCCL: elements of the send buffer for all-reduce, broadcast, reduce, all-gather, gather,
// send; elements of the receive buffer for reduce-scatter, scatter, receive; elements per peer for
// all-to-all.
struct Arguments {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t count = 0;
  // On a GPU, from the host: elements of every share but the last; to one share: of the largest that threads
  // beside these take of the same links.
  size_t largest = 0;
  size_t elementBytes = 1;
  ReduceSpec reduce;
  size_t stride = 0;  // elements from one peer's block to the next, where there are blocks; 0: `count`
  int root = 0;
  size_t chunkBytes = 0;  // most bytes that one epoch or one link slot carries
  int rings = 1;
  int directions = 1;                   // 2: a ring gathers both ways round
  int arity = 2;                        // children per rank of a tree
  bool stream = false;                  // results are larger than the caches: write past them
  const NormArguments* norm = nullptr;  // of an all-reduce with RMSNorm; in the memory of the host

  constexpr size_t tokenBytes() const { return norm->hidden * elementBytes; }
  constexpr size_t bytes() const { return count * elementBytes; }
  constexpr size_t largestBytes() const { return largest * elementBytes; }
  // Where the block of `peer` begins in a buffer of one block per rank, in bytes.
  constexpr size_t block(int peer) const {
    return static_cast<size_t>(peer) * (stride != 0 ? stride : count) * elementBytes;
  }
};

}  // namespace stretto
