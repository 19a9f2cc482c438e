// Collectives in which each rank pushes to every peer's slot and reads what arrived in its own: all-gather,
// reduce-scatter, all-to-all. One hop. Each has a form whose readiness travels in the lines (for at most
// WindowLayout::kMostLinePayload bytes per peer) and one of chunks with a signal.
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

// `block(peer)` is what goes to that peer, `place(peer)` where its block goes here; `bytes` each.
template <Backend B, typename Block, typename Place>
Status exchangeLines(B& b, size_t bytes, Block block, Place place) {
  b.nextEpoch();
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    b.putLines(b.coop(), peer, block(peer), bytes);
  }
  b.copy(b.coop(), place(b.rank()), block(b.rank()), bytes, false);
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    STRETTO_TRY(b.readLines(b.coop(), peer, place(peer), bytes));
  }
  return kOkStatus;
}

template <Backend B, typename Block, typename Place>
Status exchangeChunks(B& b, const Arguments& a, Block block, Place place) {
  const size_t most = std::min<size_t>(a.chunkBytes, b.layout().slotBytes);
  for (const Span chunk : Chunks(a.bytes(), most)) {
    b.nextEpoch();
    pushAll(b, Leg::kScatter, [&](int peer) { return Piece{block(peer) + chunk.begin, chunk.size}; });
    b.copy(b.coop(), place(b.rank()) + chunk.begin, block(b.rank()) + chunk.begin, chunk.size, a.stream);
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
      STRETTO_TRY(b.wait(b.coop(), peer, b.cellFrom(peer, Leg::kScatter), b.epoch()));
      b.copy(b.coop(), place(peer) + chunk.begin, b.slotFrom(peer, Leg::kScatter), chunk.size, a.stream);
    }
  }
  return kOkStatus;
}

template <Backend B>
Status allGatherPushLines(B& b, const Arguments& a) {
  return exchangeLines(
      b, a.bytes(), [&](int) { return a.send; },
      [&](int peer) { return a.receive + static_cast<size_t>(peer) * a.bytes(); });
}

template <Backend B>
Status allGatherPush(B& b, const Arguments& a) {
  return exchangeChunks(
      b, a, [&](int) { return a.send; },
      [&](int peer) { return a.receive + static_cast<size_t>(peer) * a.bytes(); });
}

template <Backend B>
Status allToAllPushLines(B& b, const Arguments& a) {
  return exchangeLines(
      b, a.bytes(), [&](int peer) { return a.send + static_cast<size_t>(peer) * a.bytes(); },
      [&](int peer) { return a.receive + static_cast<size_t>(peer) * a.bytes(); });
}

template <Backend B>
Status allToAllPush(B& b, const Arguments& a) {
  return exchangeChunks(
      b, a, [&](int peer) { return a.send + static_cast<size_t>(peer) * a.bytes(); },
      [&](int peer) { return a.receive + static_cast<size_t>(peer) * a.bytes(); });
}

template <Backend B>
Status reduceScatterPushLines(B& b, const Arguments& a) {
  b.nextEpoch();
  const auto block = [&](int peer) { return a.send + static_cast<size_t>(peer) * a.bytes(); };
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    b.putLines(b.coop(), peer, block(peer), a.bytes());
  }
  return b.reduceLines(b.coop(), a.reduce, a.receive, block(b.rank()), a.bytes());
}

template <Backend B>
Status reduceScatterPush(B& b, const Arguments& a) {
  const size_t most = elementsIn(std::min<size_t>(a.chunkBytes, b.layout().slotBytes), a.elementBytes);
  for (const Span chunk : Chunks(a.count, most)) {
    b.nextEpoch();
    const auto block = [&](int peer) {
      return a.send + (static_cast<size_t>(peer) * a.count + chunk.begin) * a.elementBytes;
    };
    pushAll(b, Leg::kScatter, [&](int peer) { return Piece{block(peer), chunk.size * a.elementBytes}; });
    STRETTO_TRY(waitAll(b, Leg::kScatter));
    const Sources<B> sources(b, Leg::kScatter, block(b.rank()));
    b.reduce(b.coop(), a.reduce, {a.receive + chunk.begin * a.elementBytes}, sources.at, b.ranks(),
             chunk.size, a.stream);
  }
  return kOkStatus;
}

}  // namespace stretto::algorithms
