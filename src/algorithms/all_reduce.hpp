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

// Readiness in the lines, as many bytes in one epoch as they hold.
template <Backend B>
STRETTO_ANYWHERE Status allReduceOneShotLines(B& b, const Arguments& a) {
  if constexpr (requires { requires B::kOneEpoch; }) {
    b.nextEpoch();
    return b.shareLines(b.coop(), a.reduce, a.receive, a.send, a.bytes());
  }
  const LineChunks chunks(b, a);
  if constexpr (requires { b.shareLines(b.coop(), a.reduce, a.receive, a.send, a.bytes()); }) {
    if (chunks.size() == 1) {
      b.nextEpoch();
      return b.shareLines(b.coop(), a.reduce, a.receive, a.send, a.bytes());
    }
  }
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          b.putLines(b.coop(), rotated(b.rank(), step, b.ranks()), a.send + chunks.at(chunk),
                     chunks.bytes(chunk));
        }
        return Status{};
      },
      [&](size_t chunk) {
        return b.reduceLines(b.coop(), a.reduce, a.receive + chunks.at(chunk), a.send + chunks.at(chunk),
                             chunks.bytes(chunk));
      });
}

template <Backend B>
STRETTO_ANYWHERE Status allReduceOneShot(B& b, const Arguments& a) {
  const Chunks chunks(a.count,
                      elementsIn(std::min<size_t>(a.chunkBytes, b.layout().slotBytes), a.elementBytes));
  const auto own = [&](size_t chunk) { return a.send + chunks[chunk].begin * a.elementBytes; };
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        const Piece all{own(chunk), chunks[chunk].size * a.elementBytes};
        pushAll(b, Leg::kScatter, [&](int) { return all; });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Leg::kScatter));
        const Sources<B> sources(b, Leg::kScatter, own(chunk));
        b.reduce(b.coop(), a.reduce, {a.receive + chunks[chunk].begin * a.elementBytes}, sources.at,
                 b.ranks(), chunks[chunk].size, a.stream);
        return kOkStatus;
      });
}

// One shard per rank of every chunk of a two-shot.
class Shards {
 public:
  STRETTO_ANYWHERE Shards(const Arguments& a, size_t slotBytes, int ranks)
      : elementBytes_(a.elementBytes),
        grain_(lineGrain(a.elementBytes)),
        ranks_(static_cast<size_t>(ranks)),
        chunks_(a.count, largest(a, slotBytes)) {}

  STRETTO_ANYWHERE size_t chunks() const { return chunks_.size(); }
  // Of the whole buffer, in bytes.
  STRETTO_ANYWHERE size_t begin(size_t chunk, int rank) const {
    return (chunks_[chunk].begin + shard(chunk, rank).begin) * elementBytes_;
  }
  STRETTO_ANYWHERE size_t count(size_t chunk, int rank) const { return shard(chunk, rank).size; }
  STRETTO_ANYWHERE size_t bytes(size_t chunk, int rank) const { return count(chunk, rank) * elementBytes_; }

 private:
  STRETTO_ANYWHERE size_t largest(const Arguments& a, size_t slotBytes) const {
    const size_t shardBytes = std::min<size_t>(a.chunkBytes / ranks_, slotBytes);
    return std::max(elementsIn(shardBytes, elementBytes_) / grain_, size_t{1}) * grain_ * ranks_;
  }
  STRETTO_ANYWHERE Span shard(size_t chunk, int rank) const {
    return Split(chunks_[chunk].size, ranks_, grain_)[static_cast<size_t>(rank)];
  }

  size_t elementBytes_;
  size_t grain_;
  size_t ranks_;
  Chunks chunks_;
};

// The owner's half of a two-shot chunk: reduces its shard and pushes the result to every peer.
template <Backend B>
STRETTO_ANYWHERE void reduceAndPush(B& b, const Arguments& a, size_t at, size_t count) {
  const Sources<B> sources(b, Leg::kScatter, a.send + at);
  std::byte* pushed[kMaxRanks];
  for (int step = 1; step < b.ranks(); ++step) {
    pushed[step - 1] = b.slotAt(rotated(b.rank(), step, b.ranks()), Leg::kGather);
  }
  b.reduce(b.coop(), a.reduce, {a.receive + at, pushed, b.ranks() - 1}, sources.at, b.ranks(), count,
           a.stream);
  signalAll(b, Leg::kGather);
}

template <Backend B>
STRETTO_ANYWHERE Status allReduceTwoShot(B& b, const Arguments& a) {
  const Shards shards(a, b.layout().slotBytes, b.ranks());
  return pipeline(
      b, shards.chunks(),
      [&](size_t chunk) {
        pushAll(b, Leg::kScatter, [&](int peer) {
          return Piece{a.send + shards.begin(chunk, peer), shards.bytes(chunk, peer)};
        });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Leg::kScatter));
        reduceAndPush(b, a, shards.begin(chunk, b.rank()), shards.count(chunk, b.rank()));
        return kOkStatus;
      },
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
          STRETTO_TRY(b.wait(b.coop(), peer, b.cellFrom(peer, Leg::kGather), b.epoch()));
          b.copy(b.coop(), a.receive + shards.begin(chunk, peer), b.slotFrom(peer, Leg::kGather),
                 shards.bytes(chunk, peer), a.stream);
        }
        return kOkStatus;
      });
}

}  // namespace stretto::algorithms
