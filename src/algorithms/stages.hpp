// Collectives over hosts with several ranks each, in stages: inside every host over shared memory, and
// between the ranks of the same index on all hosts, a rail. Each byte passes between hosts as often as if a
// host were one rank, over as many rails as a host has ranks. Stages follow each other for one window of the
// buffer at a time; a stage is a ring (ring.hpp), or pairwise (pairs.hpp) along a rail of two.
#pragma once

#include "algorithms/pairs.hpp"
#include "algorithms/ring.hpp"
#include "algorithms/subset.hpp"

namespace stretto::algorithms {

// Says where its ranks are (links/net/host_map.hpp), and how long chunks are on either kind of link.
template <typename B>
concept SpreadBackend = ChunkBackend<B> && LendingBackend<B> && requires(B b, int rank, int host, int index) {
  { b.places().hostOf(rank) } -> std::same_as<int>;
  { b.places().indexOf(rank) } -> std::same_as<int>;
  { b.places().home(host) } -> std::convertible_to<std::span<const int>>;
  { b.places().rail(index) } -> std::convertible_to<std::span<const int>>;
  { b.mostInNearChunk() } -> std::same_as<size_t>;
  { b.mostInFarChunk() } -> std::same_as<size_t>;
};

template <SpreadBackend B>
Subset<B> homeOf(B& b) {
  const auto& places = b.places();
  return {b, places.home(places.hostOf(b.rank())), places.indexOf(b.rank()), b.mostInNearChunk()};
}
template <SpreadBackend B>
Subset<B> railOf(B& b) {
  const auto& places = b.places();
  return {b, places.rail(places.indexOf(b.rank())), places.hostOf(b.rank()), b.mostInFarChunk()};
}

// The arguments of a stage: chunks are as long as its links take.
inline Arguments stageOf(const Arguments& a, const std::byte* send, std::byte* receive, size_t count) {
  Arguments stage = a;
  stage.send = send;
  stage.receive = receive;
  stage.count = count;
  stage.stride = 0;
  stage.chunkBytes = SIZE_MAX;
  stage.rings = stage.directions = 1;
  return stage;
}

// The part of `span` that the piece beginning at `at` has of it, if pieces have `most`.
constexpr Span pieceOf(Span span, size_t at, size_t most) {
  const size_t begin = std::min(at, span.size);
  return {span.begin + begin, std::min(most, span.size - begin)};
}

// Member i ends with block(i), elements of both buffers, of all members' a.send: in a.receive, without the
// divisor. `largest` elements are in the largest block.
template <ChunkBackend B, typename Block>
Status reduceBlocks(B& b, const Arguments& a, size_t largest, Block block) {
  const size_t most = elementsIn(linkBytes(b, a), a.elementBytes);
  Ring<B> ring(b, 0);
  for (size_t at = 0; at < largest; at += most) {
    const auto piece = [&](int member) { return pieceOf(block(member), at, most); };
    STRETTO_TRY(ringReducePhase(b, ring, a, piece));
    const Span mine = piece(b.rank());
    const size_t begin = mine.begin * a.elementBytes;
    STRETTO_TRY(ring.reduceKeep(partialOf(a.reduce), a.send + begin, a.receive + begin, mine.size, 0));
  }
  return kOkStatus;
}

// Member i has block(i), elements of a.receive, and ends with all of them.
template <ChunkBackend B, typename Block>
Status gatherBlocks(B& b, const Arguments& a, size_t largest, Block block) {
  const size_t most = elementsIn(linkBytes(b, a), a.elementBytes);
  Ring<B> ring(b, 0);
  for (size_t at = 0; at < largest; at += most) {
    const auto piece = [&](int member) {
      const Span elements = pieceOf(block(member), at, most);
      return Span{elements.begin * a.elementBytes, elements.size * a.elementBytes};
    };
    const Span mine = piece(b.rank());
    STRETTO_TRY(ring.send(a.receive + mine.begin, mine.size, 1));
    STRETTO_TRY(ringGatherPhase(b, ring, a, piece));
  }
  return kOkStatus;
}

template <SpreadBackend B>
Status allReduceStages(B& b, const Arguments& a) {
  Subset<B> home = homeOf(b), rail = railOf(b);
  const size_t grain = lineGrain(a.elementBytes);
  for (const Span window : Chunks(a.count, elementsIn(kStageWindow, a.elementBytes))) {
    const Split blocks(window.size, static_cast<size_t>(home.ranks()), grain);
    const auto block = [&](int member) {
      const Span elements = blocks[static_cast<size_t>(member)];
      return Span{window.begin + elements.begin, elements.size};
    };
    const Arguments inside = stageOf(a, a.send, a.receive, a.count);
    STRETTO_TRY(reduceBlocks(home, inside, blocks.each(), block));
    const Span mine = block(home.rank());
    std::byte* const partial = a.receive + mine.begin * a.elementBytes;
    const Arguments between = stageOf(a, partial, partial, mine.size);
    STRETTO_TRY(alongRail(rail.ranks()) == Algorithm::kPairwise ? allReducePairwise(rail, between)
                                                                : allReduceRing(rail, between));
    STRETTO_TRY(gatherBlocks(home, inside, blocks.each(), block));
  }
  return kOkStatus;
}

// Along the rail first: what comes from another host is passed on inside, once for each host.
template <SpreadBackend B>
Status allGatherStages(B& b, const Arguments& a) {
  Subset<B> home = homeOf(b), rail = railOf(b);
  const auto& places = b.places();
  const Arguments stage = stageOf(a, a.receive, a.receive, a.count);
  b.copy(b.coop(), a.receive + a.block(b.rank()), a.send, a.bytes(), false);
  for (const Span window : Chunks(a.count, elementsIn(kStageWindow, a.elementBytes))) {
    const auto blockOf = [&](int rank) {
      return Span{a.block(rank) / a.elementBytes + window.begin, window.size};
    };
    const auto onRail = [&](int host) {
      return blockOf(places.rail(home.rank())[static_cast<size_t>(host)]);
    };
    STRETTO_TRY(gatherBlocks(rail, stage, window.size, onRail));
    for (int host = 0; host < rail.ranks(); ++host) {
      const auto atHome = [&](int index) { return blockOf(places.home(host)[static_cast<size_t>(index)]); };
      STRETTO_TRY(gatherBlocks(home, stage, window.size, atHome));
    }
  }
  return kOkStatus;
}

// From the root along its rail, and from every rank of that rail inside its host.
template <SpreadBackend B>
Status broadcastStages(B& b, const Arguments& a) {
  Subset<B> home = homeOf(b), rail = railOf(b);
  const auto& places = b.places();
  const int index = places.indexOf(a.root);
  const bool passesOn = b.rank() != a.root && home.rank() == index;
  for (const Span window : Chunks(a.count, elementsIn(kStageWindow, a.elementBytes))) {
    const size_t at = window.begin * a.elementBytes;
    Arguments stage = stageOf(a, a.send + at, a.receive + at, window.size);
    stage.arity = 1;
    if (home.rank() == index) {
      stage.root = places.hostOf(a.root);
      STRETTO_TRY(broadcastTree(rail, stage));
    }
    if (passesOn) stage.send = stage.receive;
    stage.root = index;
    STRETTO_TRY(broadcastTree(home, stage));
  }
  return kOkStatus;
}

}  // namespace stretto::algorithms
