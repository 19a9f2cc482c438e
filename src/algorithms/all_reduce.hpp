// All-reduce: every rank gets the element-wise reduction of all ranks' buffers.
//
//   one-shot   push everything to everyone, reduce locally: one hop, (n-1) S bytes out of each rank
//   two-shot   push shard j to its owner j, who reduces and pushes the result: two hops, 2 (n-1)/n S bytes
//
// Both reduce in rank order, so every rank gets the same bits whatever their arrival. In place is allowed:
// a rank writes only elements whose inputs it has already pushed or read.
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

// Readiness in the lines: for at most WindowLayout::kMostLinePayload bytes.
template <Backend B>
Status allReduceOneShotLines(B& b, const Arguments& a) {
  b.nextEpoch();
  for (int step = 1; step < b.ranks(); ++step) {
    b.putLines(b.coop(), rotated(b.rank(), step, b.ranks()), a.send, a.bytes());
  }
  return b.reduceLines(b.coop(), a.reduce, a.receive, a.send, a.bytes());
}

template <Backend B>
Status allReduceOneShot(B& b, const Arguments& a) {
  const size_t most = elementsIn(std::min<size_t>(a.chunkBytes, b.layout().slotBytes), a.elementBytes);
  for (const Span chunk : Chunks(a.count, most)) {
    b.nextEpoch();
    const std::byte* own = a.send + chunk.begin * a.elementBytes;
    pushAll(b, Leg::kScatter, [&](int) { return Piece{own, chunk.size * a.elementBytes}; });
    STRETTO_TRY(waitAll(b, Leg::kScatter));
    const Sources<B> sources(b, Leg::kScatter, own);
    b.reduce(b.coop(), a.reduce, {a.receive + chunk.begin * a.elementBytes}, sources.at, b.ranks(),
             chunk.size, a.stream);
  }
  return kOkStatus;
}

// The owner's half of a two-shot chunk: reduces its shard and pushes the result to every peer.
template <Backend B>
void reduceAndPush(B& b, const Arguments& a, const std::byte* own, std::byte* result, size_t count) {
  const Sources<B> sources(b, Leg::kScatter, own);
  std::byte* pushed[kMaxRanks];
  for (int step = 1; step < b.ranks(); ++step) {
    pushed[step - 1] = b.slotAt(rotated(b.rank(), step, b.ranks()), Leg::kGather);
  }
  b.reduce(b.coop(), a.reduce, {result, pushed, b.ranks() - 1}, sources.at, b.ranks(), count, a.stream);
  signalAll(b, Leg::kGather);
}

template <Backend B>
Status allReduceTwoShot(B& b, const Arguments& a) {
  const size_t ranks = static_cast<size_t>(b.ranks());
  const size_t shardBytes = std::min<size_t>(a.chunkBytes / ranks, b.layout().slotBytes);
  const size_t grain = lineGrain(a.elementBytes);
  const size_t most = std::max(elementsIn(shardBytes, a.elementBytes) / grain, size_t{1}) * grain * ranks;
  for (const Span chunk : Chunks(a.count, most)) {
    b.nextEpoch();
    const Split shards(chunk.size, ranks, grain);
    const auto offsetOf = [&](int rank) {
      return (chunk.begin + shards[static_cast<size_t>(rank)].begin) * a.elementBytes;
    };
    const auto sizeOfShard = [&](int rank) { return shards[static_cast<size_t>(rank)].size; };

    pushAll(b, Leg::kScatter, [&](int peer) {
      return Piece{a.send + offsetOf(peer), sizeOfShard(peer) * a.elementBytes};
    });
    STRETTO_TRY(waitAll(b, Leg::kScatter));
    reduceAndPush(b, a, a.send + offsetOf(b.rank()), a.receive + offsetOf(b.rank()), sizeOfShard(b.rank()));
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
      STRETTO_TRY(b.wait(b.coop(), peer, b.cellFrom(peer, Leg::kGather), b.epoch()));
      b.copy(b.coop(), a.receive + offsetOf(peer), b.slotFrom(peer, Leg::kGather),
             sizeOfShard(peer) * a.elementBytes, a.stream);
    }
  }
  return kOkStatus;
}

}  // namespace stretto::algorithms
