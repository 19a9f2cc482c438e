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
  if constexpr (OneEpoch<B>) {
    b.nextEpoch();
    return b.shareLines(b.coop(), a.reduce, a.receive, a.send, a.bytes());
  } else {
    const LineChunks chunks(b, a);
    if constexpr (SharesLines<B>) {
      if (chunks.size() == 1) {
        b.nextEpoch();
        return b.shareLines(b.coop(), a.reduce, a.receive, a.send, a.bytes());
      }
    }
    return pipeline(
        b, chunks.size(),
        [&](size_t chunk) {
          const Piece all{a.send + chunks.at(chunk), chunks.bytes(chunk)};
          putLinesAll(b, Phase::kScatter, all.bytes, [&](int) { return all; });
          return Status{};
        },
        [&](size_t chunk) {
          return b.reduceLines(b.coop(), a.reduce, a.receive + chunks.at(chunk), a.send + chunks.at(chunk),
                               chunks.bytes(chunk));
        });
  }
}

template <SlotBackend B>
Status allReduceOneShot(B& b, const Arguments& a) {
  const Chunks chunks(a.count,
                      elementsIn(std::min<size_t>(a.chunkBytes, b.layout().slotBytes), a.elementBytes));
  const auto own = [&](size_t chunk) { return a.send + chunks[chunk].begin * a.elementBytes; };
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        const Piece all{own(chunk), chunks[chunk].size * a.elementBytes};
        pushAll(b, Phase::kScatter, [&](int) { return all; });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Phase::kScatter));
        reduceSlots(b, a, a.receive + chunks[chunk].begin * a.elementBytes, own(chunk), chunks[chunk].size);
        return kOkStatus;
      });
}

template <SlotBackend B>
Status allReduceTwoShot(B& b, const Arguments& a) {
  const Shards shards(a, b.layout().slotBytes, b.ranks());
  return pipeline(
      b, shards.chunks(),
      [&](size_t chunk) {
        pushAll(b, Phase::kScatter, [&](int peer) {
          return Piece{a.send + shards.begin(chunk, peer), shards.bytes(chunk, peer)};
        });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Phase::kScatter));
        const size_t at = shards.begin(chunk, b.rank());
        reducePutSlots(b, a, a.receive + at, a.send + at, shards.bytes(chunk, b.rank()) / a.elementBytes);
        return kOkStatus;
      },
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
          STRETTO_TRY(b.wait(b.coop(), peer, b.mailboxFrom(peer, Phase::kGather), b.epoch()));
          b.copy(b.coop(), a.receive + shards.begin(chunk, peer), b.slotFrom(peer, Phase::kGather),
                 shards.bytes(chunk, peer), a.stream);
        }
        return kOkStatus;
      });
}

// Readiness in the lines of both phases. A chunk is as many bytes of each shard as lines hold.
template <Backend B>
STRETTO_ANYWHERE Status allReduceTwoShotLines(B& b, const Arguments& a) {
  if constexpr (TakesTurns<B>) {
    b.nextEpoch();
    return b.shardLines(b.coop(), a.reduce, a.receive, a.send, Shards::each(a.bytes(), b.ranks()), a.bytes());
  } else {
    const Shards shards(a, b.lineBytes(), b.ranks());
    const auto scatter = [&](size_t chunk) {
      putLinesAll(b, Phase::kScatter, shards.mostBytes(chunk), [&](int peer) {
        return Piece{a.send + shards.begin(chunk, peer), shards.bytes(chunk, peer)};
      });
      return Status{};
    };
    const auto reduce = [&](size_t chunk) {
      const size_t at = shards.begin(chunk, b.rank());
      return reducePutLines(b, a.reduce, a.receive + at, a.send + at, shards.bytes(chunk, b.rank()),
                            shards.mostBytes(chunk));
    };
    const auto gather = [&](size_t chunk) {
      return readLinesAll(b, Phase::kGather, shards.mostBytes(chunk), [&](int peer) {
        return Room{a.receive + shards.begin(chunk, peer), shards.bytes(chunk, peer)};
      });
    };
    if constexpr (OneEpoch<B>) {
      b.nextEpoch();
      (void)scatter(0);
      STRETTO_TRY(reduce(0));
      return gather(0);
    }
    return pipeline(b, shards.chunks(), scatter, reduce, gather);
  }
}

}  // namespace stretto::algorithms
