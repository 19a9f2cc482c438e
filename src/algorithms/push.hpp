// Collectives in which each rank pushes to every peer's slot and reads what arrived in its own: all-gather,
// reduce-scatter, all-to-all. One hop. Each has a form whose readiness travels in the lines (for as many
// bytes per peer as the backend's lines hold) and one of chunks with a signal.
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

// `block(peer)` is what goes to that peer, `place(peer)` where its block goes here; `bytes` each.
template <Backend B, typename Block, typename Place>
STRETTO_ANYWHERE Status exchangeLines(B& b, const Arguments& a, Block block, Place place) {
  const Chunks chunks(a.bytes(), std::min(a.chunkBytes, b.lineBytes()));
  return pipeline(
      b, chunks.size(),
      [&](size_t index) {
        const Span chunk = chunks[index];
        putLinesAll(b, Phase::kScatter, chunk.size, [&](int peer) {
          return Piece{block(peer) + chunk.begin, chunk.size};
        });
        b.copy(b.coop(), place(b.rank()) + chunk.begin, block(b.rank()) + chunk.begin, chunk.size, false);
        return Status{};
      },
      [&](size_t index) {
        const Span chunk = chunks[index];
        return readLinesAll(b, Phase::kScatter, chunk.size, [&](int peer) {
          return Room{place(peer) + chunk.begin, chunk.size};
        });
      });
}

template <SlotBackend B, typename Block, typename Place>
Status exchangeChunks(B& b, const Arguments& a, Block block, Place place) {
  const Chunks chunks(a.bytes(), std::min<size_t>(a.chunkBytes, b.layout().slotBytes));
  return pipeline(
      b, chunks.size(),
      [&](size_t index) {
        const Span chunk = chunks[index];
        pushAll(b, Phase::kScatter, [&](int peer) { return Piece{block(peer) + chunk.begin, chunk.size}; });
        b.copy(b.coop(), place(b.rank()) + chunk.begin, block(b.rank()) + chunk.begin, chunk.size, a.stream);
        return kOkStatus;
      },
      [&](size_t index) {
        const Span chunk = chunks[index];
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
          STRETTO_TRY(b.wait(b.coop(), peer, b.mailboxFrom(peer, Phase::kScatter), b.epoch()));
          b.copy(b.coop(), place(peer) + chunk.begin, b.slotFrom(peer, Phase::kScatter), chunk.size,
                 a.stream);
        }
        return kOkStatus;
      });
}

template <Backend B>
STRETTO_ANYWHERE Status allGatherPushLines(B& b, const Arguments& a) {
  return exchangeLines(
      b, a, [&](int) { return a.send; }, [&](int peer) { return a.receive + a.block(peer); });
}

template <SlotBackend B>
Status allGatherPush(B& b, const Arguments& a) {
  return exchangeChunks(
      b, a, [&](int) { return a.send; }, [&](int peer) { return a.receive + a.block(peer); });
}

template <Backend B>
STRETTO_ANYWHERE Status allToAllPushLines(B& b, const Arguments& a) {
  return exchangeLines(
      b, a, [&](int peer) { return a.send + a.block(peer); },
      [&](int peer) { return a.receive + a.block(peer); });
}

template <SlotBackend B>
Status allToAllPush(B& b, const Arguments& a) {
  return exchangeChunks(
      b, a, [&](int peer) { return a.send + a.block(peer); },
      [&](int peer) { return a.receive + a.block(peer); });
}

template <Backend B>
STRETTO_ANYWHERE Status reduceScatterPushLines(B& b, const Arguments& a) {
  if constexpr (TakesTurns<B>) {
    b.nextEpoch();
    return b.dealLines(b.coop(), a.reduce, a.receive, a.send, a.block(1), a.bytes());
  } else if constexpr (OneEpoch<B>) {
    b.nextEpoch();
    putLinesAll(b, Phase::kScatter, a.bytes(), [&](int peer) {
      return Piece{a.send + a.block(peer), a.bytes()};
    });
    return b.reduceLines(b.coop(), a.reduce, a.receive, a.send + a.block(b.rank()), a.bytes());
  } else {
    const LineChunks chunks(b, a);
    return pipeline(
        b, chunks.size(),
        [&](size_t chunk) {
          putLinesAll(b, Phase::kScatter, chunks.bytes(chunk), [&](int peer) {
            return Piece{a.send + a.block(peer) + chunks.at(chunk), chunks.bytes(chunk)};
          });
          return Status{};
        },
        [&](size_t chunk) {
          return b.reduceLines(b.coop(), a.reduce, a.receive + chunks.at(chunk),
                               a.send + a.block(b.rank()) + chunks.at(chunk), chunks.bytes(chunk));
        });
  }
}

template <SlotBackend B>
Status reduceScatterPush(B& b, const Arguments& a) {
  const Chunks chunks(a.count,
                      elementsIn(std::min<size_t>(a.chunkBytes, b.layout().slotBytes), a.elementBytes));
  const auto block = [&](int peer, size_t chunk) {
    return a.send + a.block(peer) + chunks[chunk].begin * a.elementBytes;
  };
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        pushAll(b, Phase::kScatter, [&](int peer) {
          return Piece{block(peer, chunk), chunks[chunk].size * a.elementBytes};
        });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Phase::kScatter));
        reduceSlots(b, a, a.receive + chunks[chunk].begin * a.elementBytes, block(b.rank(), chunk),
                    chunks[chunk].size);
        return kOkStatus;
      });
}

}  // namespace stretto::algorithms
