// Collectives that are pairs of ranks exchanging chunks over links: gather and scatter (with the root), and
// the pairwise all-to-all (round t: send to rank + t, receive from rank - t).
#pragma once

#include "algorithms/link_channel.hpp"
#include "algorithms/shape.hpp"

namespace stretto::algorithms {

template <Backend B>
STRETTO_ANYWHERE size_t linkBytes(const B& b, const Arguments& a) {
  return std::min<size_t>(a.chunkBytes, b.layout().linkChunk);
}

template <Backend B>
STRETTO_ANYWHERE Status gatherFlat(B& b, const Arguments& a) {
  const bool isRoot = b.rank() == a.root;
  for (const Span chunk : Chunks(a.bytes(), linkBytes(b, a), a.largestBytes())) {
    if (!isRoot) {
      STRETTO_TRY(Outlet<B>(b, a.root).send(a.send + chunk.begin, chunk.size));
      continue;
    }
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      std::byte* const to = a.receive + a.block(peer) + chunk.begin;
      STRETTO_TRY(Inlet<B>(b, peer).receive(to, chunk.size, a.stream));
    }
  }
  if (isRoot) {
    b.copy(b.coop(), a.receive + a.block(a.root), a.send, a.bytes(), a.stream);
  }
  return kOkStatus;
}

template <Backend B>
STRETTO_ANYWHERE Status scatterFlat(B& b, const Arguments& a) {
  const bool isRoot = b.rank() == a.root;
  for (const Span chunk : Chunks(a.bytes(), linkBytes(b, a), a.largestBytes())) {
    if (!isRoot) {
      STRETTO_TRY(Inlet<B>(b, a.root).receive(a.receive + chunk.begin, chunk.size, a.stream));
      continue;
    }
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      const std::byte* from = a.send + a.block(peer) + chunk.begin;
      STRETTO_TRY(Outlet<B>(b, peer).send(from, chunk.size));
    }
  }
  if (isRoot) {
    b.copy(b.coop(), a.receive, a.send + a.block(a.root), a.bytes(), a.stream);
  }
  return kOkStatus;
}

template <Backend B>
STRETTO_ANYWHERE Status allToAllPairwise(B& b, const Arguments& a) {
  const auto block = [&](int peer) { return a.block(peer); };
  b.copy(b.coop(), a.receive + block(b.rank()), a.send + block(b.rank()), a.bytes(), a.stream);
  for (int round = 1; round < b.ranks(); ++round) {
    Outlet<B> to(b, rotated(b.rank(), round, b.ranks()));
    Inlet<B> from(b, rotated(b.rank(), b.ranks() - round, b.ranks()));
    for (const Span chunk : Chunks(a.bytes(), linkBytes(b, a), a.largestBytes())) {
      STRETTO_TRY(to.send(a.send + block(to.peer()) + chunk.begin, chunk.size));
      STRETTO_TRY(from.receive(a.receive + block(from.peer()) + chunk.begin, chunk.size, a.stream));
    }
  }
  return kOkStatus;
}

}  // namespace stretto::algorithms
