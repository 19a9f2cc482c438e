// The two exchanges that slot algorithms are made of. In each, every rank hears from every rank: that is
// what lets two slots suffice (docs/decisions/0002-two-slots.md).
#pragma once

#include "algorithms/shape.hpp"
#include "base/status.hpp"
#include "primitives/backend.hpp"

namespace stretto::algorithms {

// Tells every peer that what this rank put into its slot of `leg` is complete.
template <Backend B>
void signalAll(B& b, Leg leg) {
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    b.signal(b.coop(), peer, b.cellAt(peer, leg), b.epoch());
  }
}

// Waits until every peer has said so.
template <Backend B>
Status waitAll(B& b, Leg leg) {
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
    STRETTO_TRY(b.wait(b.coop(), peer, b.cellFrom(peer, leg), b.epoch()));
  }
  return kOkStatus;
}

// Puts `part(peer)` into this rank's slot at every peer, signalling each as soon as it is written.
template <Backend B, typename Part>
void pushAll(B& b, Leg leg, Part part) {
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    const auto [from, bytes] = part(peer);
    b.put(b.coop(), peer, b.slotAt(peer, leg), from, bytes);
    b.signal(b.coop(), peer, b.cellAt(peer, leg), b.epoch());
  }
}

// Bytes to move, and from where.
struct Piece {
  const std::byte* from;
  size_t bytes;
};

// One source per rank, in rank order: `own` for this rank, `leg`'s slot for the others.
template <Backend B>
struct Sources {
  Sources(B& b, Leg leg, const std::byte* own) {
    for (int source = 0; source < b.ranks(); ++source) {
      at[source] = source == b.rank() ? own : b.slotFrom(source, leg);
    }
  }
  const std::byte* at[kMaxRanks];
};

}  // namespace stretto::algorithms
