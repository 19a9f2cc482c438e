// Collectives that read peers' buffers where they are: one copy instead of two, for large messages, where
// every peer's ordinary memory can be reached. Ranks first tell each other their buffers (in lines: that is
// also the start barrier), and part only when nobody reads any more (the end barrier).
//
// A buffer that can be located in our address space (a thread's, or shared memory of another process) is read
// in place; any other is copied here first, a tile at a time. Results go back the shorter way: read from the
// owner's buffer by those who can locate it, pushed to the slots of those who cannot; both ends know which.
//
// In place is safe: the owner of a shard announces its result after it has read everybody's input of that
// shard, and only then do the others overwrite theirs.
//
// After a fault the owner of a buffer may have changed it while it was read. So a rank signals the end
// barrier, without which nobody reports success, only after it has found that no peer had failed when it had
// read all (endReading), and a rank that fails keeps its caller waiting until nobody reads its buffers
// (awaitReaders).
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

// Everybody's buffers, as this rank can reach them.
struct Buffers {
  struct Offered {
    Shareable send;
    Shareable receive;
  };
  Offered all[kMaxRanks];
  const std::byte* send[kMaxRanks];     // located, or null
  const std::byte* receive[kMaxRanks];  // located, or null
  // Whether `peer` can locate this rank's receive buffer.
  template <ReachingBackend B>
  bool locatedBy(const B& b, int peer) const {
    return all[b.rank()].receive.id != 0 || b.sharesAddresses(peer);
  }
};

template <ReachingBackend B>
Status exchangeBuffers(B& b, const Arguments& a, size_t sendBytes, size_t receiveBytes, Buffers& buffers) {
  using Offered = Buffers::Offered;
  b.nextEpoch();
  const Offered mine{b.describe(a.send, sendBytes), b.describe(a.receive, receiveBytes)};
  for (int step = 1; step < b.ranks(); ++step) {
    b.putLines(b.coop(), rotated(b.rank(), step, b.ranks()), reinterpret_cast<const std::byte*>(&mine),
               sizeof mine);
  }
  buffers.all[b.rank()] = mine;
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    STRETTO_TRY(
        b.readLines(b.coop(), peer, reinterpret_cast<std::byte*>(&buffers.all[peer]), sizeof(Offered)));
  }
  for (int peer = 0; peer < b.ranks(); ++peer) {
    STRETTO_TRY(b.locate(peer, buffers.all[peer].send, buffers.send[peer]));
    STRETTO_TRY(b.locate(peer, buffers.all[peer].receive, buffers.receive[peer]));
  }
  return kOkStatus;
}

// At most so much is read without a look for failures: a few hundred microseconds.
inline constexpr size_t kReadBytes = size_t{4} << 20;

// `bytes` of peer's send buffer from `offset` on, into `to`.
template <ReachingBackend B>
Status readSend(B& b, const Buffers& buffers, int peer, size_t offset, std::byte* to, size_t bytes,
                bool stream) {
  const auto* remote = reinterpret_cast<const std::byte*>(buffers.all[peer].send.address) + offset;
  for (const Span part : Chunks(bytes, kReadBytes)) {
    STRETTO_TRY(b.goOnReading());
    if (buffers.send[peer] != nullptr) {
      b.copy(b.coop(), to + part.begin, buffers.send[peer] + offset + part.begin, part.size, stream);
    } else {
      STRETTO_TRY(b.get(b.coop(), peer, to + part.begin, remote + part.begin, part.size));
    }
  }
  return kOkStatus;
}

// Nobody passes before everybody has come: no buffer is read after its owner returned.
template <ReachingBackend B>
Status endBarrier(B& b) {
  b.nextEpoch();
  signalAll(b, Phase::kGather);
  return waitAll(b, Phase::kGather);
}

// A whole direct operation: `read(buffers)` does the reading of one that sends and receives so many bytes.
template <ReachingBackend B, typename Read>
Status directly(B& b, const Arguments& a, size_t sendBytes, size_t receiveBytes, Read read) {
  Buffers buffers;
  const auto run = [&] {
    STRETTO_TRY(exchangeBuffers(b, a, sendBytes, receiveBytes, buffers));
    STRETTO_TRY(b.beginReading());
    STRETTO_TRY(read(buffers));
    STRETTO_TRY(b.endReading());
    return endBarrier(b);
  };
  const Status status = run();
  if (!status.ok()) b.awaitReaders(status);
  return status;
}

// Reduces `count` elements that lie at `offset` in every rank's send buffer into `to`, and into the places of
// `pushed` as well. A tile at a time: what has to be copied first stays in the nearest cache.
template <ReachingBackend B>
Status reduceFromPeers(B& b, const Arguments& a, const Buffers& buffers, size_t offset, Destinations to,
                       size_t count) {
  constexpr size_t kTileBytes = 131072;
  std::byte* const scratch = b.scratch(kTileBytes * static_cast<size_t>(b.ranks()));
  const std::byte* sources[kMaxRanks];
  std::byte* places[kMaxRanks] = {};
  for (const Span tile : Chunks(count, elementsIn(kTileBytes, a.elementBytes))) {
    STRETTO_TRY(b.goOnReading());
    const size_t at = tile.begin * a.elementBytes;
    for (int source = 0; source < b.ranks(); ++source) {
      sources[source] = buffers.send[source] + offset + at;
      if (buffers.send[source] != nullptr) continue;
      std::byte* const copy = scratch + static_cast<size_t>(source) * kTileBytes;
      STRETTO_TRY(readSend(b, buffers, source, offset + at, copy, tile.size * a.elementBytes, false));
      sources[source] = copy;
    }
    for (int place = 0; place < to.pushedCount; ++place) places[place] = to.pushed[place] + at;
    b.reduce(b.coop(), a.reduce, {to.own + at, places, to.pushedCount}, sources, b.ranks(), tile.size,
             a.stream);
  }
  return kOkStatus;
}

// This rank's shard of one chunk, reduced, kept, and pushed to those who cannot read it here.
template <ReachingBackend B>
Status ownShard(B& b, const Arguments& a, const Buffers& buffers, size_t offset, size_t count) {
  std::byte* pushed[kMaxRanks];
  int pushedCount = 0;
  for (int step = 1; step < b.ranks(); ++step) {
    const int peer = rotated(b.rank(), step, b.ranks());
    if (!buffers.locatedBy(b, peer)) pushed[pushedCount++] = b.slotAt(peer, Phase::kScatter);
  }
  STRETTO_TRY(reduceFromPeers(b, a, buffers, offset, {a.receive + offset, pushed, pushedCount}, count));
  signalAll(b, Phase::kScatter);
  return kOkStatus;
}

// Each owner reduces its shard out of everybody's input; the others then take the result.
template <ReachingBackend B>
Status reduceAndTake(B& b, const Arguments& a, const Buffers& buffers) {
  const size_t ranks = static_cast<size_t>(b.ranks());
  const size_t grain = lineGrain(a.elementBytes);
  const size_t shardBytes = std::min<size_t>(a.chunkBytes / ranks, b.layout().slotBytes);
  const size_t most = std::max<size_t>(1, shardBytes / a.elementBytes / grain) * grain * ranks;
  for (const Span chunk : Chunks(a.count, most)) {
    b.nextEpoch();
    const Split shards(chunk.size, ranks, grain);
    const auto offsetOf = [&](int rank) {
      return (chunk.begin + shards[static_cast<size_t>(rank)].begin) * a.elementBytes;
    };
    STRETTO_TRY(ownShard(b, a, buffers, offsetOf(b.rank()), shards[static_cast<size_t>(b.rank())].size));
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
      const size_t bytes = shards[static_cast<size_t>(peer)].size * a.elementBytes;
      b.pauseReading();
      STRETTO_TRY(b.wait(b.coop(), peer, b.mailboxFrom(peer, Phase::kScatter), b.epoch()));
      STRETTO_TRY(b.beginReading());
      const std::byte* result = buffers.receive[peer] != nullptr ? buffers.receive[peer] + offsetOf(peer)
                                                                 : b.slotFrom(peer, Phase::kScatter);
      b.copy(b.coop(), a.receive + offsetOf(peer), result, bytes, a.stream);
    }
  }
  return kOkStatus;
}

template <ReachingBackend B>
Status allReduceDirect(B& b, const Arguments& a) {
  return directly(b, a, a.bytes(), a.bytes(),
                  [&](const Buffers& buffers) { return reduceAndTake(b, a, buffers); });
}

template <ReachingBackend B>
Status reduceScatterDirect(B& b, const Arguments& a) {
  const size_t mine = static_cast<size_t>(b.rank()) * a.bytes();
  return directly(b, a, a.bytes() * static_cast<size_t>(b.ranks()), a.bytes(), [&](const Buffers& buffers) {
    return reduceFromPeers(b, a, buffers, mine, {a.receive}, a.count);
  });
}

// Every rank gets one block of `bytes` from every peer: from `offset` in the peer's send buffer.
template <ReachingBackend B>
Status getBlocks(B& b, const Arguments& a, size_t sendBytes, size_t offset) {
  const auto place = [&](int peer) { return a.receive + static_cast<size_t>(peer) * a.bytes(); };
  return directly(b, a, sendBytes, a.bytes() * static_cast<size_t>(b.ranks()), [&](const Buffers& buffers) {
    b.copy(b.coop(), place(b.rank()), a.send + offset, a.bytes(), a.stream);
    for (int step = 1; step < b.ranks(); ++step) {
      const int peer = rotated(b.rank(), step, b.ranks());
      STRETTO_TRY(readSend(b, buffers, peer, offset, place(peer), a.bytes(), a.stream));
    }
    return kOkStatus;
  });
}

template <ReachingBackend B>
Status allGatherDirect(B& b, const Arguments& a) {
  return getBlocks(b, a, a.bytes(), 0);
}

template <ReachingBackend B>
Status allToAllDirect(B& b, const Arguments& a) {
  return getBlocks(b, a, a.bytes() * static_cast<size_t>(b.ranks()),
                   static_cast<size_t>(b.rank()) * a.bytes());
}

template <ReachingBackend B>
Status broadcastDirect(B& b, const Arguments& a) {
  return directly(b, a, a.bytes(), a.bytes(), [&](const Buffers& buffers) {
    if (b.rank() != a.root) return readSend(b, buffers, a.root, 0, a.receive, a.bytes(), a.stream);
    b.copy(b.coop(), a.receive, a.send, a.bytes(), a.stream);
    return kOkStatus;
  });
}

}  // namespace stretto::algorithms
