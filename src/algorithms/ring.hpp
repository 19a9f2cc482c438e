// Rings over links: each rank talks to one successor and one predecessor. Several rings split the data; each
// takes a stride that is coprime with the number of ranks, so that different rings use different links.
//
// A ring visits positions 0 .. n-1; position p is rank p * stride mod n. In the reduce phase step t sends the
// block of position p-1-t and receives that of p-2-t, adding its own input on the way; after n-1 steps
// position p holds its own block, reduced. The gather phase passes finished blocks on: all of them one way
// round, or each both ways, half as far (Arguments::directions). A block is reduced along one path only, so
// all ranks get the same bits; the order is the ring's, not the ranks'.
#pragma once

#include "algorithms/link_channel.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/shape.hpp"

namespace stretto::algorithms {

STRETTO_ANYWHERE constexpr bool coprime(int a, int b) {
  while (b != 0) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a == 1;
}

// The stride of ring `ring` among `ranks`: the ring-th number coprime with it, round and round.
STRETTO_ANYWHERE inline int ringStride(int ring, int ranks) {
  int strides[kMaxRings];
  int found = 0;
  for (int stride = 1; (stride < ranks || found == 0) && found <= ring; ++stride) {
    if (coprime(stride, ranks)) strides[found++] = stride;
  }
  return strides[ring % found];
}

// A sum on its way round: it is divided where it ends.
STRETTO_ANYWHERE inline ReduceSpec partialOf(const ReduceSpec& spec) {
  return {spec.type, spec.op == Operator::kAvg ? Operator::kSum : spec.op, 1};
}

// One ring as one rank sees it. A step of its reduce phase has two sources: what arrived, and this rank's own
// input.
template <ChunkBackend B>
class Ring {
 public:
  STRETTO_ANYWHERE Ring(B& b, int index)
      : b_(b),
        stride_(ringStride(index, b.ranks())),
        next_((b.rank() + stride_) % b.ranks()),
        previous_((b.rank() + b.ranks() - stride_ % b.ranks()) % b.ranks()) {
    while (position_ * stride_ % b.ranks() != b.rank()) ++position_;
  }

  // The rank whose block this rank handles `back` positions before its own; after it, if that is negative.
  STRETTO_ANYWHERE int blockAt(int back) const {
    const int position = ((position_ - back) % b_.ranks() + b_.ranks()) % b_.ranks();
    return position * stride_ % b_.ranks();
  }

  // To the successor, and of two directions to the predecessor as well. It may be lent, also where results
  // replace the input: what comes back for this place has been with the successor.
  STRETTO_ANYWHERE Status send(const std::byte* from, size_t bytes, int directions) {
    STRETTO_TRY(Outlet<B>(b_, next_).lend(from, bytes));
    return directions < 2 ? kOkStatus : Outlet<B>(b_, previous_).lend(from, bytes);
  }

  // Receives a partial block, adds `own`, and passes the sum on without touching the user's memory.
  STRETTO_ANYWHERE Status reduceForward(const ReduceSpec& spec, const std::byte* own, size_t count) {
    const size_t bytes = count * sizeOf(spec.type);
    const std::byte* sources[2] = {nullptr, own};
    std::byte* place = nullptr;
    Inlet<B> from(b_, previous_);
    Outlet<B> onward(b_, next_);
    STRETTO_TRY(from.await(bytes, sources[0]));
    STRETTO_TRY(onward.acquire(bytes, place));
    b_.reduce(b_.coop(), partialOf(spec), {place}, sources, 2, count, false);
    onward.publish();
    from.release();
    return kOkStatus;
  }

  // Receives a partial block, adds `own`, keeps the finished block and passes it on, in so many directions.
  // To the predecessor it goes from where it is kept: publish() has let the whole coop see it there.
  STRETTO_ANYWHERE Status reduceKeep(const ReduceSpec& spec, const std::byte* own, std::byte* to,
                                     size_t count, int directions) {
    const size_t bytes = count * sizeOf(spec.type);
    const bool forward = directions > 0;
    const std::byte* sources[2] = {nullptr, own};
    std::byte* place = nullptr;
    Inlet<B> from(b_, previous_);
    Outlet<B> onward(b_, next_);
    const bool pushes = forward && !onward.lends(bytes);
    STRETTO_TRY(from.await(bytes, sources[0]));
    if (pushes) STRETTO_TRY(onward.acquire(bytes, place));
    b_.reduce(b_.coop(), spec, {to, &place, pushes ? 1 : 0}, sources, 2, count, false);
    if (pushes) onward.publish();
    from.release();
    if (forward && !pushes) STRETTO_TRY(onward.lend(to, bytes));
    return directions < 2 ? kOkStatus : Outlet<B>(b_, previous_).lend(to, bytes);
  }

  // Receives the finished block from `back` positions before, or after, its own; keeps it and, if `forward`,
  // passes it on the same way round.
  STRETTO_ANYWHERE Status keep(int back, std::byte* to, size_t bytes, bool forward, bool stream) {
    const std::byte* arrived = nullptr;
    Inlet<B> from(b_, back > 0 ? previous_ : next_);
    Outlet<B> onward(b_, back > 0 ? next_ : previous_);
    if (forward && onward.lends(bytes)) {
      STRETTO_TRY(from.receive(to, bytes, false));
      return onward.lend(to, bytes);
    }
    STRETTO_TRY(from.await(bytes, arrived));
    if (forward) STRETTO_TRY(onward.send(arrived, bytes));
    b_.copy(b_.coop(), to, arrived, bytes, stream && !forward);
    from.release();
    return kOkStatus;
  }

 private:
  B& b_;
  int stride_;
  int position_ = 0;
  int next_;
  int previous_;
};

// One window of one ring: block(rank) are elements of the whole buffer.
template <ChunkBackend B, typename Block>
STRETTO_ANYWHERE Status ringReducePhase(B& b, Ring<B>& ring, const Arguments& a, Block block) {
  const auto own = [&](int back) { return a.send + block(ring.blockAt(back)).begin * a.elementBytes; };
  const auto sizeAt = [&](int back) { return block(ring.blockAt(back)).size; };
  STRETTO_TRY(ring.send(own(1), sizeAt(1) * a.elementBytes, 1));
  for (int step = 2; step < b.ranks(); ++step) {
    STRETTO_TRY(ring.reduceForward(a.reduce, own(step), sizeAt(step)));
  }
  return kOkStatus;
}

// Between two ranks both ways are the same one.
STRETTO_ANYWHERE inline int gatherDirections(const Arguments& a, int ranks) {
  return std::min(a.directions, ranks - 1);
}

// Every rank has sent its own finished block; place(rank) are bytes of the whole result. Both ways round
// blocks come in turns from both neighbours: 1 position before, 1 after, 2 before, ...
template <ChunkBackend B, typename Place>
STRETTO_ANYWHERE Status ringGatherPhase(B& b, Ring<B>& ring, const Arguments& a, Place place) {
  const int directions = gatherDirections(a, b.ranks());
  int back = 1;
  for (int left = b.ranks() - 1; left > 0; --left) {
    const Span other = place(ring.blockAt(back));
    STRETTO_TRY(ring.keep(back, a.receive + other.begin, other.size, left > directions, a.stream));
    back = directions == 1 ? back + 1 : back > 0 ? -back : 1 - back;
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status allReduceRing(B& b, const Arguments& a) {
  const size_t ranks = static_cast<size_t>(b.ranks());
  const size_t grain = lineGrain(a.elementBytes);
  const size_t piece = linkBytes(b, a);
  const size_t most = std::max<size_t>(1, piece / a.elementBytes / grain) * grain * ranks;
  int turn = 0;
  for (const Span window : Chunks(a.count, most, a.largest)) {
    Ring<B> ring(b, turn++ % a.rings);
    const Split shards(window.size, ranks, grain);
    const auto block = [&](int rank) {
      const Span shard = shards[static_cast<size_t>(rank)];
      return Span{window.begin + shard.begin, shard.size};
    };
    STRETTO_TRY(ringReducePhase(b, ring, a, block));
    const Span mine = block(b.rank());
    const size_t at = mine.begin * a.elementBytes;
    STRETTO_TRY(
        ring.reduceKeep(a.reduce, a.send + at, a.receive + at, mine.size, gatherDirections(a, b.ranks())));
    STRETTO_TRY(ringGatherPhase(b, ring, a, [&](int rank) {
      const Span other = block(rank);
      return Span{other.begin * a.elementBytes, other.size * a.elementBytes};
    }));
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status reduceScatterRing(B& b, const Arguments& a) {
  const size_t piece = elementsIn(linkBytes(b, a), a.elementBytes);
  int turn = 0;
  for (const Span chunk : Chunks(a.count, piece, a.largest)) {
    Ring<B> ring(b, turn++ % a.rings);
    const auto block = [&](int rank) {
      return Span{a.block(rank) / a.elementBytes + chunk.begin, chunk.size};
    };
    STRETTO_TRY(ringReducePhase(b, ring, a, block));
    const std::byte* own = a.send + block(b.rank()).begin * a.elementBytes;
    STRETTO_TRY(ring.reduceKeep(a.reduce, own, a.receive + chunk.begin * a.elementBytes, chunk.size, 0));
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status allGatherRing(B& b, const Arguments& a) {
  const size_t most = linkBytes(b, a);
  int turn = 0;
  for (const Span chunk : Chunks(a.bytes(), most, a.largestBytes())) {
    Ring<B> ring(b, turn++ % a.rings);
    const auto place = [&](int rank) { return Span{a.block(rank) + chunk.begin, chunk.size}; };
    STRETTO_TRY(ring.send(a.send + chunk.begin, chunk.size, gatherDirections(a, b.ranks())));
    b.copy(b.coop(), a.receive + place(b.rank()).begin, a.send + chunk.begin, chunk.size, a.stream);
    STRETTO_TRY(ringGatherPhase(b, ring, a, place));
  }
  return kOkStatus;
}

}  // namespace stretto::algorithms
