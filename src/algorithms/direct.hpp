// Collectives that read peers' buffers where they are: one copy instead of two, for large messages, where
// every peer's ordinary memory can be reached. Ranks first tell each other their addresses (in lines: that
// is also the start barrier), and part only when nobody reads any more (the end barrier).
//
// In place is safe: the owner of a shard announces its result after it has read everybody's input of that
// shard, and only then do the others overwrite theirs.
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

struct Addresses {
  const std::byte* send;
  const std::byte* receive;
};

template <Backend B>
Status exchangeAddresses(B& b, const Arguments& a, Addresses* all) {
  b.nextEpoch();
  const Addresses mine{a.send, a.receive};
  for (int step = 1; step < b.ranks(); ++step) {
    b.putLines(b.coop(), rotated(b.rank(), step, b.ranks()), reinterpret_cast<const std::byte*>(&mine),
               sizeof mine);
  }
  all[b.rank()] = mine;
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    STRETTO_TRY(b.readLines(b.coop(), peer, reinterpret_cast<std::byte*>(&all[peer]), sizeof(Addresses)));
  }
  return kOkStatus;
}

// Nobody passes before everybody has come: no buffer is read after its owner returned.
template <Backend B>
Status endBarrier(B& b) {
  signalAll(b, Leg::kGather);
  return waitAll(b, Leg::kGather);
}

// Reduces `count` elements that lie at offset(rank) in every rank's send buffer into `to`, a tile at a time
// where peers' memory has to be copied first.
template <Backend B>
Status reduceFromPeers(B& b, const Arguments& a, const Addresses* all, size_t offset, std::byte* to,
                       size_t count) {
  constexpr size_t kTileBytes = 131072;
  std::byte* scratch = b.scratch(kTileBytes * static_cast<size_t>(b.ranks()));
  const std::byte* sources[kMaxRanks];
  for (const Span tile : Chunks(count, elementsIn(kTileBytes, a.elementBytes))) {
    const size_t at = tile.begin * a.elementBytes;
    for (int source = 0; source < b.ranks(); ++source) {
      auto viewed = b.view(b.coop(), source, all[source].send + offset + at, tile.size * a.elementBytes,
                           scratch + static_cast<size_t>(source) * kTileBytes);
      if (!viewed.ok()) return viewed.status();
      sources[source] = viewed.value();
    }
    b.reduce(b.coop(), a.reduce, {to + at}, sources, b.ranks(), tile.size, a.stream);
  }
  return kOkStatus;
}

// Each owner reduces its shard out of everybody's input; the others then read the result from the owner.
template <Backend B>
Status allReduceDirect(B& b, const Arguments& a) {
  Addresses all[kMaxRanks];
  STRETTO_TRY(exchangeAddresses(b, a, all));
  const size_t ranks = static_cast<size_t>(b.ranks());
  const size_t grain = lineGrain(a.elementBytes);
  const size_t most = std::max<size_t>(1, a.chunkBytes / a.elementBytes / ranks / grain) * grain * ranks;
  for (const Span chunk : Chunks(a.count, most)) {
    b.nextEpoch();
    const Split shards(chunk.size, ranks, grain);
    const auto offsetOf = [&](int rank) {
      return (chunk.begin + shards[static_cast<size_t>(rank)].begin) * a.elementBytes;
    };
    const size_t mine = offsetOf(b.rank());
    STRETTO_TRY(
        reduceFromPeers(b, a, all, mine, a.receive + mine, shards[static_cast<size_t>(b.rank())].size));
    signalAll(b, Leg::kScatter);
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
      const size_t bytes = shards[static_cast<size_t>(peer)].size * a.elementBytes;
      STRETTO_TRY(b.wait(b.coop(), peer, b.cellFrom(peer, Leg::kScatter), b.epoch()));
      STRETTO_TRY(
          b.get(b.coop(), peer, a.receive + offsetOf(peer), all[peer].receive + offsetOf(peer), bytes));
    }
  }
  return endBarrier(b);
}

template <Backend B>
Status reduceScatterDirect(B& b, const Arguments& a) {
  Addresses all[kMaxRanks];
  STRETTO_TRY(exchangeAddresses(b, a, all));
  const size_t mine = static_cast<size_t>(b.rank()) * a.bytes();
  STRETTO_TRY(reduceFromPeers(b, a, all, mine, a.receive, a.count));
  return endBarrier(b);
}

// Every rank gets one block of `bytes` from every peer: from `offset` in the peer's send buffer.
template <Backend B>
Status getBlocks(B& b, const Arguments& a, size_t offset) {
  Addresses all[kMaxRanks];
  STRETTO_TRY(exchangeAddresses(b, a, all));
  const auto place = [&](int peer) { return a.receive + static_cast<size_t>(peer) * a.bytes(); };
  b.copy(b.coop(), place(b.rank()), a.send + offset, a.bytes(), a.stream);
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    STRETTO_TRY(b.get(b.coop(), peer, place(peer), all[peer].send + offset, a.bytes()));
  }
  return endBarrier(b);
}

template <Backend B>
Status allGatherDirect(B& b, const Arguments& a) {
  return getBlocks(b, a, 0);
}

template <Backend B>
Status allToAllDirect(B& b, const Arguments& a) {
  return getBlocks(b, a, static_cast<size_t>(b.rank()) * a.bytes());
}

template <Backend B>
Status broadcastDirect(B& b, const Arguments& a) {
  Addresses all[kMaxRanks];
  STRETTO_TRY(exchangeAddresses(b, a, all));
  if (b.rank() == a.root) {
    b.copy(b.coop(), a.receive, a.send, a.bytes(), a.stream);
  } else {
    STRETTO_TRY(b.get(b.coop(), a.root, a.receive, all[a.root].send, a.bytes()));
  }
  return endBarrier(b);
}

}  // namespace stretto::algorithms
