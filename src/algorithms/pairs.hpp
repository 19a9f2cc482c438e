// Collectives that are pairs of ranks exchanging chunks over links: broadcast, reduce, gather and scatter
// (each rank with the root), the pairwise all-to-all (round t: send to rank + t, receive from rank - t), and
// all-reduce and reduce-scatter in which every rank sends every other one what that is to reduce: in the
// order of the ranks, and in one hop.
#pragma once

#include "algorithms/link_channel.hpp"
#include "algorithms/shape.hpp"

namespace stretto::algorithms {

// `of(peer)` is what the root sends to that peer, and keeps for itself.
template <ChunkBackend B, typename Of>
STRETTO_ANYWHERE Status sendFromRoot(B& b, const Arguments& a, Of of) {
  const bool isRoot = b.rank() == a.root;
  for (const Span chunk : Chunks(a.bytes(), linkBytes(b, a), a.largestBytes())) {
    if (!isRoot) {
      STRETTO_TRY(OneWayInlet<B>(b, a.root).receive(a.receive + chunk.begin, chunk.size, a.stream));
      continue;
    }
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      STRETTO_TRY(OneWayOutlet<B>(b, peer).lend(of(peer) + chunk.begin, chunk.size));
    }
    b.copy(b.coop(), a.receive + chunk.begin, of(a.root) + chunk.begin, chunk.size, a.stream);
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status broadcastFlat(B& b, const Arguments& a) {
  return sendFromRoot(b, a, [&](int) { return a.send; });
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status scatterFlat(B& b, const Arguments& a) {
  return sendFromRoot(b, a, [&](int peer) { return a.send + a.block(peer); });
}

// The root reduces in the order of the ranks.
template <ChunkBackend B>
STRETTO_ANYWHERE Status reduceFlat(B& b, const Arguments& a) {
  const std::byte* sources[kMaxRanks];
  for (const Span chunk : Chunks(a.count, linkElements(b, a), a.largest)) {
    const size_t at = chunk.begin * a.elementBytes;
    const size_t bytes = chunk.size * a.elementBytes;
    if (b.rank() != a.root) {
      STRETTO_TRY(OneWayOutlet<B>(b, a.root).lend(a.send + at, bytes));
      continue;
    }
    for (int peer = 0; peer < b.ranks(); ++peer) {
      sources[peer] = a.send + at;
      if (peer != a.root) STRETTO_TRY(OneWayInlet<B>(b, peer).await(bytes, sources[peer]));
    }
    b.reduce(b.coop(), a.reduce, {a.receive + at}, sources, b.ranks(), chunk.size, false);
    for (int step = 1; step < b.ranks(); ++step) {
      OneWayInlet<B>(b, rotated(b.rank(), step, b.ranks())).release();
    }
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status gatherFlat(B& b, const Arguments& a) {
  const bool isRoot = b.rank() == a.root;
  for (const Span chunk : Chunks(a.bytes(), linkBytes(b, a), a.largestBytes())) {
    if (!isRoot) {
      STRETTO_TRY(OneWayOutlet<B>(b, a.root).lend(a.send + chunk.begin, chunk.size));
      continue;
    }
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      std::byte* const to = a.receive + a.block(peer) + chunk.begin;
      STRETTO_TRY(OneWayInlet<B>(b, peer).receive(to, chunk.size, a.stream));
    }
  }
  if (isRoot) {
    b.copy(b.coop(), a.receive + a.block(a.root), a.send, a.bytes(), a.stream);
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status allToAllPairwise(B& b, const Arguments& a) {
  const auto block = [&](int peer) { return a.block(peer); };
  b.copy(b.coop(), a.receive + block(b.rank()), a.send + block(b.rank()), a.bytes(), a.stream);
  for (int round = 1; round < b.ranks(); ++round) {
    Outlet<B> to(b, rotated(b.rank(), round, b.ranks()));
    Inlet<B> from(b, rotated(b.rank(), b.ranks() - round, b.ranks()));
    for (const Span chunk : Chunks(a.bytes(), linkBytes(b, a), a.largestBytes())) {
      STRETTO_TRY(to.lend(a.send + block(to.peer()) + chunk.begin, chunk.size));
      STRETTO_TRY(from.receive(a.receive + block(from.peer()) + chunk.begin, chunk.size, a.stream));
    }
  }
  return kOkStatus;
}

// `to(peer)` is what that peer reduces, `own` what this rank does. Chunks leave before those of the same
// place are waited for, but so few that a link holds them: nobody waits for room while others wait for it.
// Results that replace the input do so when it has left.
template <ChunkBackend B, typename To>
STRETTO_ANYWHERE Status reducePairwise(B& b, const Arguments& a, const std::byte* own, To to) {
  constexpr size_t kLag = WindowLayout::kLinkDepth / 2;
  const std::byte* sources[kMaxRanks];
  const Chunks chunks(a.count, linkElements(b, a), a.largest);
  const size_t lag = std::min(kLag, chunks.size());
  for (size_t turn = 0; turn < chunks.size() + lag; ++turn) {
    for (int step = 1; step < b.ranks() && turn < chunks.size(); ++step) {
      Outlet<B> outlet(b, rotated(b.rank(), step, b.ranks()));
      STRETTO_TRY(outlet.lend(to(outlet.peer()) + chunks[turn].begin * a.elementBytes,
                              chunks[turn].size * a.elementBytes));
    }
    if (turn < lag) continue;
    const Span chunk = chunks[turn - lag];
    const size_t at = chunk.begin * a.elementBytes;
    const size_t after = std::min(turn + 1, chunks.size()) - (turn - lag) - 1;
    if (a.send == a.receive) STRETTO_TRY(awaitAllLeft(b, after));
    for (int peer = 0; peer < b.ranks(); ++peer) {
      sources[peer] = own + at;
      if (peer != b.rank()) STRETTO_TRY(Inlet<B>(b, peer).await(chunk.size * a.elementBytes, sources[peer]));
    }
    b.reduce(b.coop(), a.reduce, {a.receive + at}, sources, b.ranks(), chunk.size, a.stream);
    for (int step = 1; step < b.ranks(); ++step) Inlet<B>(b, rotated(b.rank(), step, b.ranks())).release();
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status allReducePairwise(B& b, const Arguments& a) {
  return reducePairwise(b, a, a.send, [&](int) { return a.send; });
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status reduceScatterPairwise(B& b, const Arguments& a) {
  return reducePairwise(b, a, a.send + a.block(b.rank()), [&](int peer) { return a.send + a.block(peer); });
}

}  // namespace stretto::algorithms
