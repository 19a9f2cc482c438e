// The exchanges that slot algorithms are made of, and how they follow one another. In each exchange every
// rank hears from every rank: that is what lets so few slots suffice (docs/decisions/0002-two-slots.md).
#pragma once

#include "algorithms/shape.hpp"
#include "base/anywhere.hpp"
#include "base/status.hpp"
#include "primitives/backend.hpp"

namespace stretto::algorithms {

// Runs `stages` on every chunk: of one chunk one after the other, each chunk in an epoch of its own. A
// backend with threads to spare overlaps the stages of neighbouring chunks, so a stage may rely on what the
// stages before it have done to its own chunk, and on nothing that happens to others.
template <Backend B, typename... Stages>
STRETTO_ANYWHERE Status pipeline(B& b, size_t chunks, Stages... stages) {
  if constexpr (requires { b.pipeline(chunks, stages...); }) {
    return b.pipeline(chunks, stages...);
  } else {
    Status status;
    for (size_t chunk = 0; chunk < chunks && status.ok(); ++chunk) {
      b.nextEpoch();
      (void)((status = stages(chunk), status.ok()) && ...);
    }
    return status;
  }
}

// A run of elements, as many at a time as the backend's lines hold in one epoch.
class LineChunks {
 public:
  template <Backend B>
  STRETTO_ANYWHERE LineChunks(const B& b, const Arguments& a)
      : elementBytes_(a.elementBytes), chunks_(a.count, elementsIn(b.lineBytes(), a.elementBytes)) {}
  STRETTO_ANYWHERE size_t size() const { return chunks_.size(); }
  // In bytes: where a chunk begins, and how long it is.
  STRETTO_ANYWHERE size_t at(size_t chunk) const { return chunks_[chunk].begin * elementBytes_; }
  STRETTO_ANYWHERE size_t bytes(size_t chunk) const { return chunks_[chunk].size * elementBytes_; }

 private:
  size_t elementBytes_;
  Chunks chunks_;
};

// Tells every peer that what this rank put into its slot of `leg` is complete.
template <Backend B>
STRETTO_ANYWHERE void signalAll(B& b, Leg leg) {
  if constexpr (requires { b.signalAll(b.coop(), leg); }) {
    b.signalAll(b.coop(), leg);
  } else {
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      b.signal(b.coop(), peer, b.cellAt(peer, leg), b.epoch());
    }
  }
}

// Waits until every peer has said so.
template <Backend B>
STRETTO_ANYWHERE Status waitAll(B& b, Leg leg) {
  if constexpr (requires { b.waitAll(b.coop(), leg); }) {
    return b.waitAll(b.coop(), leg);
  } else {
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
      STRETTO_TRY(b.wait(b.coop(), peer, b.cellFrom(peer, leg), b.epoch()));
    }
    return kOkStatus;
  }
}

// Puts `part(peer)` into this rank's slot at every peer and signals it: each at once, or all together where
// the backend can.
template <Backend B, typename Part>
STRETTO_ANYWHERE void pushAll(B& b, Leg leg, Part part) {
  constexpr bool kTogether = requires {
    b.signalAll(b.coop(), leg);
  };
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    const auto [from, bytes] = part(peer);
    b.put(b.coop(), peer, b.slotAt(peer, leg), from, bytes);
    if constexpr (!kTogether) b.signal(b.coop(), peer, b.cellAt(peer, leg), b.epoch());
  }
  if constexpr (kTogether) b.signalAll(b.coop(), leg);
}

// Bytes to move, and from where.
struct Piece {
  const std::byte* from;
  size_t bytes;
};

// One source per rank, in rank order: `own` for this rank, `leg`'s slot for the others.
template <Backend B>
struct Sources {
  STRETTO_ANYWHERE Sources(B& b, Leg leg, const std::byte* own) {
    for (int source = 0; source < b.ranks(); ++source) {
      at[source] = source == b.rank() ? own : b.slotFrom(source, leg);
    }
  }
  const std::byte* at[kMaxRanks];
};

}  // namespace stretto::algorithms
