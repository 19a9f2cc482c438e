// The exchanges that slot algorithms are made of, and how they follow one another. In each exchange every
// rank hears from every rank: that is what lets so few slots suffice (docs/decisions/0002-two-slots.md).
#pragma once

#include "algorithms/shape.hpp"
#include "base/anywhere.hpp"
#include "base/status.hpp"
#include "primitives/backend.hpp"

namespace stretto::algorithms {

// Bytes to move, and from where.
struct Piece {
  const std::byte* from;
  size_t bytes;
};

// Where bytes go.
struct Room {
  std::byte* to;
  size_t bytes;
};

// Runs `stages` on every chunk: of one chunk one after the other, each chunk in an epoch of its own. A
// backend with threads to spare overlaps the stages of neighbouring chunks, so a stage may rely on what the
// stages before it have done to its own chunk, and on nothing that happens to others.
template <Backend B, typename... Stages>
STRETTO_ANYWHERE Status pipeline(B& b, size_t chunks, Stages... stages) {
  if constexpr (Overlaps<B>) {
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

// A run of elements, as many at a time as the backend's lines hold in one epoch; in bytes, in whole elements.
class LineChunks {
 public:
  template <Backend B>
  STRETTO_ANYWHERE LineChunks(const B& b, const Arguments& a)
      : chunks_(a.bytes(), std::min(a.chunkBytes, b.lineBytes()) / kLargestElement * kLargestElement) {}
  STRETTO_ANYWHERE size_t size() const { return chunks_.size(); }
  // Where a chunk begins, and how long it is.
  STRETTO_ANYWHERE size_t at(size_t chunk) const { return chunks_[chunk].begin; }
  STRETTO_ANYWHERE size_t bytes(size_t chunk) const { return chunks_[chunk].size; }

 private:
  static constexpr size_t kLargestElement = 8;
  Chunks chunks_;
};

// Every chunk of a two-shot, cut into one shard for each of `owners` ranks. Counted in bytes, in whole cache
// lines but for the last shard; few divisions, which take long on a GPU.
class Shards {
 public:
  STRETTO_ANYWHERE Shards(const Arguments& a, size_t mostShardBytes, int owners)
      : bytes_(a.bytes()),
        owners_(static_cast<uint32_t>(owners)),
        each_(largest(a.chunkBytes, mostShardBytes)),
        chunks_(Chunks(bytes_, each_ * owners_).size()),
        lastEach_(each(bytes_ - (chunks_ - std::min<size_t>(chunks_, 1)) * each_ * owners_, owners)) {}

  // Of so many bytes in one chunk, the largest shard.
  STRETTO_ANYWHERE static size_t each(size_t bytes, int owners) {
    const size_t lines = (bytes + kGrain - 1) / kGrain;
    const auto all = static_cast<uint32_t>(owners);
    const bool few = lines <= 0xffffffff - all;
    return kGrain * (few ? (static_cast<uint32_t>(lines) + all - 1) / all : (lines + all - 1) / all);
  }

  STRETTO_ANYWHERE size_t chunks() const { return chunks_; }
  // In bytes: where a shard begins in the whole buffer, its size, that of the largest of its chunk, and the
  // chunk's.
  STRETTO_ANYWHERE size_t begin(size_t chunk, int owner) const {
    return std::min(bytes_, chunkBegin(chunk) + static_cast<size_t>(owner) * mostBytes(chunk));
  }
  STRETTO_ANYWHERE size_t bytes(size_t chunk, int owner) const {
    const size_t from = begin(chunk, owner);
    return std::min(mostBytes(chunk), std::min(bytes_, chunkBegin(chunk + 1)) - from);
  }
  STRETTO_ANYWHERE size_t mostBytes(size_t chunk) const { return chunk + 1 < chunks_ ? each_ : lastEach_; }
  STRETTO_ANYWHERE size_t chunkBytes(size_t chunk) const {
    return std::min(bytes_, chunkBegin(chunk + 1)) - chunkBegin(chunk);
  }

 private:
  static constexpr size_t kGrain = 64;

  STRETTO_ANYWHERE size_t chunkBegin(size_t chunk) const { return chunk * each_ * owners_; }
  STRETTO_ANYWHERE size_t largest(size_t chunkBytes, size_t mostShardBytes) const {
    const size_t most = chunkBytes >= mostShardBytes * owners_ ? mostShardBytes : chunkBytes / owners_;
    return std::max(most / kGrain, size_t{1}) * kGrain;
  }

  size_t bytes_;
  uint32_t owners_;
  size_t each_;
  size_t chunks_;
  size_t lastEach_;
};

// Tells every peer that what this rank put into its slot of `phase` is complete.
template <SlotBackend B>
void signalAll(B& b, Phase phase) {
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    b.signal(b.coop(), peer, b.mailboxAt(peer, phase), b.epoch());
  }
}

// Waits until every peer has said so.
template <SlotBackend B>
Status waitAll(B& b, Phase phase) {
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
    STRETTO_TRY(b.wait(b.coop(), peer, b.mailboxFrom(peer, phase), b.epoch()));
  }
  return kOkStatus;
}

// Puts `part(peer)` into this rank's slot at every peer and signals it.
template <SlotBackend B, typename Part>
void pushAll(B& b, Phase phase, Part part) {
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    const auto [from, bytes] = part(peer);
    b.put(b.coop(), peer, b.slotAt(peer, phase), from, bytes);
    b.signal(b.coop(), peer, b.mailboxAt(peer, phase), b.epoch());
  }
}

// The same in lines. No part is larger than `most` bytes: with ranks that agree on it, a backend may send all
// of them as if they were that long.
template <Backend B, typename Part>
STRETTO_ANYWHERE void putLinesAll(B& b, Phase phase, size_t most, Part part) {
  if constexpr (FansLines<B>) {
    b.putLinesAll(b.coop(), phase, most, part);
  } else {
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      const auto [from, bytes] = part(peer);
      b.putLines(b.coop(), peer, from, bytes, phase);
    }
  }
}

// Reads what putLinesAll() of every peer has sent this rank into `place(peer)`.
template <Backend B, typename Place>
STRETTO_ANYWHERE Status readLinesAll(B& b, Phase phase, size_t most, Place place) {
  if constexpr (FansLines<B>) {
    return b.readLinesAll(b.coop(), phase, most, place);
  } else {
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      const auto [to, bytes] = place(peer);
      STRETTO_TRY(b.readLines(b.coop(), peer, to, bytes, phase));
    }
    return kOkStatus;
  }
}

// Reduces what putLinesAll() has brought with `own` into `to`, which may be null, and sends the result to the
// kGather lines of `only`, and an empty line to the others; of all peers if `only` is negative.
template <Backend B>
STRETTO_ANYWHERE Status reducePutLines(B& b, const ReduceSpec& spec, std::byte* to, const std::byte* own,
                                       size_t bytes, size_t most, int only = -1) {
  if constexpr (FansLines<B>) {
    return b.reducePutLines(b.coop(), spec, to, own, bytes, most, only);
  } else {
    alignas(kMailboxBytes) std::byte place[WindowLayout::kMostLinePayload];
    std::byte* const result = to == nullptr ? place : to;
    STRETTO_TRY(b.reduceLines(b.coop(), spec, result, own, bytes));
    putLinesAll(b, Phase::kGather, most, [&](int peer) {
      return Piece{result, only < 0 || peer == only ? bytes : 0};
    });
    return kOkStatus;
  }
}

// One source per rank, in rank order: `own` for this rank, the slot of kScatter for the others.
template <SlotBackend B>
struct Sources {
  Sources(B& b, const std::byte* own) {
    for (int source = 0; source < b.ranks(); ++source) {
      at[source] = source == b.rank() ? own : b.slotFrom(source, Phase::kScatter);
    }
  }
  const std::byte* at[kMaxRanks];
};

// Reduces what pushAll() of every peer has brought with `own` into `to`.
template <SlotBackend B>
void reduceSlots(B& b, const Arguments& a, std::byte* to, const std::byte* own, size_t count) {
  b.reduce(b.coop(), a.reduce, {to}, Sources<B>(b, own).at, b.ranks(), count, a.stream);
}

// And pushes the result into this rank's slot of kGather at every peer.
template <SlotBackend B>
void reducePutSlots(B& b, const Arguments& a, std::byte* to, const std::byte* own, size_t count) {
  std::byte* pushed[kMaxRanks];
  for (int step = 1; step < b.ranks(); ++step) {
    pushed[step - 1] = b.slotAt(rotated(b.rank(), step, b.ranks()), Phase::kGather);
  }
  b.reduce(b.coop(), a.reduce, {to, pushed, b.ranks() - 1}, Sources<B>(b, own).at, b.ranks(), count,
           a.stream);
  signalAll(b, Phase::kGather);
}

}  // namespace stretto::algorithms
