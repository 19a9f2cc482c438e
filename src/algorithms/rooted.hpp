// Broadcast, reduce, gather and scatter as exchanges in lines: who has nothing for a peer sends it an empty
// line. So every rank hears from every rank, as slots demand, and data move without credits. One hop; two for
// the broadcast whose root sends each byte only once.
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

// What a rank has for `peer`, and where what `peer` has for it goes; nothing if null.
struct PeerBlocks {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

// `parcel(peer)` for one block of a.bytes() at most in each direction.
template <Backend B, typename BlocksOf>
STRETTO_ANYWHERE Status exchangeBlocks(B& b, const Arguments& a, BlocksOf blocks) {
  const Chunks chunks(a.bytes(), std::min(a.chunkBytes, b.lineBytes()));
  return pipeline(
      b, chunks.size(),
      [&](size_t index) {
        const Span chunk = chunks[index];
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          const std::byte* from = blocks(peer).from;
          b.putLines(b.coop(), peer, from == nullptr ? nullptr : from + chunk.begin,
                     from == nullptr ? 0 : chunk.size);
        }
        const PeerBlocks own = blocks(b.rank());
        if (own.to != nullptr)
          b.copy(b.coop(), own.to + chunk.begin, own.from + chunk.begin, chunk.size, false);
        return Status{};
      },
      [&](size_t index) {
        const Span chunk = chunks[index];
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          std::byte* to = blocks(peer).to;
          STRETTO_TRY(b.readLines(b.coop(), peer, to == nullptr ? nullptr : to + chunk.begin,
                                  to == nullptr ? 0 : chunk.size));
        }
        return Status{};
      });
}

template <Backend B>
STRETTO_ANYWHERE Status broadcastPushLines(B& b, const Arguments& a) {
  return exchangeBlocks(b, a, [&](int peer) {
    PeerBlocks blocks;
    if (b.rank() == a.root) blocks.from = a.send;
    if (peer == a.root) blocks.to = a.receive;
    return blocks;
  });
}

// The root cuts a chunk into a shard for each of the others, who pass theirs on to one another. Slots of the
// first phase are free once their reader's lines of the second have come, which everybody sends to everybody.
template <Backend B>
STRETTO_ANYWHERE Status broadcastTwoShotLines(B& b, const Arguments& a) {
  const Shards shards(a, b.lineBytes(), b.ranks() - 1);
  const bool isRoot = b.rank() == a.root;
  const auto ownerOf = [&](int rank) { return rank - (rank > a.root ? 1 : 0); };
  return pipeline(
      b, shards.chunks(),
      [&](size_t chunk) {
        if (!isRoot) return Status{};
        putLinesAll(b, Phase::kScatter, shards.mostBytes(chunk), [&](int peer) {
          return Piece{a.send + shards.begin(chunk, ownerOf(peer)), shards.bytes(chunk, ownerOf(peer))};
        });
        b.copy(b.coop(), a.receive + shards.begin(chunk, 0), a.send + shards.begin(chunk, 0),
               shards.chunkBytes(chunk), false);
        return Status{};
      },
      [&](size_t chunk) {
        const int own = isRoot ? 0 : ownerOf(b.rank());
        const Room mine{a.receive + shards.begin(chunk, own), isRoot ? 0 : shards.bytes(chunk, own)};
        if (!isRoot) STRETTO_TRY(b.readLines(b.coop(), a.root, mine.to, mine.bytes));
        putLinesAll(b, Phase::kGather, shards.mostBytes(chunk), [&](int peer) {
          return Piece{mine.to, peer == a.root ? 0 : mine.bytes};
        });
        return Status{};
      },
      [&](size_t chunk) {
        return readLinesAll(b, Phase::kGather, shards.mostBytes(chunk), [&](int peer) {
          const int theirs = peer == a.root ? 0 : ownerOf(peer);
          return Room{a.receive + shards.begin(chunk, theirs),
                      isRoot || peer == a.root ? 0 : shards.bytes(chunk, theirs)};
        });
      });
}

template <Backend B>
STRETTO_ANYWHERE Status gatherPushLines(B& b, const Arguments& a) {
  return exchangeBlocks(b, a, [&](int peer) {
    PeerBlocks blocks;
    if (peer == a.root) blocks.from = a.send;
    if (b.rank() == a.root) blocks.to = a.receive + a.block(peer);
    return blocks;
  });
}

template <Backend B>
STRETTO_ANYWHERE Status scatterPushLines(B& b, const Arguments& a) {
  return exchangeBlocks(b, a, [&](int peer) {
    PeerBlocks blocks;
    if (b.rank() == a.root) blocks.from = a.send + a.block(peer);
    if (peer == a.root) blocks.to = a.receive;
    return blocks;
  });
}

// The root reduces what all have pushed to it, in rank order.
template <Backend B>
STRETTO_ANYWHERE Status reducePushLines(B& b, const Arguments& a) {
  const LineChunks chunks(b, a);
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          b.putLines(b.coop(), peer, a.send + chunks.at(chunk), peer == a.root ? chunks.bytes(chunk) : 0);
        }
        return Status{};
      },
      [&](size_t chunk) {
        if (b.rank() == a.root) {
          return b.reduceLines(b.coop(), a.reduce, a.receive + chunks.at(chunk), a.send + chunks.at(chunk),
                               chunks.bytes(chunk));
        }
        for (int step = 1; step < b.ranks(); ++step) {
          STRETTO_TRY(b.readLines(b.coop(), rotated(b.rank(), step, b.ranks()), nullptr, 0));
        }
        return Status{};
      });
}

// Each but the root reduces a shard of every chunk and sends the root the result: as much leaves and reaches
// every rank, and the root no more than once what it asked for.
template <Backend B>
STRETTO_ANYWHERE Status reduceTwoShotLines(B& b, const Arguments& a) {
  const Shards shards(a, b.lineBytes(), b.ranks() - 1);
  const bool isRoot = b.rank() == a.root;
  const auto ownerOf = [&](int rank) { return rank - (rank > a.root ? 1 : 0); };
  return pipeline(
      b, shards.chunks(),
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          if (peer == a.root) continue;
          b.putLines(b.coop(), peer, a.send + shards.begin(chunk, ownerOf(peer)),
                     shards.bytes(chunk, ownerOf(peer)));
        }
        return Status{};
      },
      [&](size_t chunk) {
        if (isRoot) {
          // To all at once, which tells them too that their places of the first phase are free.
          putLinesAll(b, Phase::kGather, 0, [](int) { return Piece{nullptr, 0}; });
          return Status{};
        }
        const int own = ownerOf(b.rank());
        const size_t bytes = shards.bytes(chunk, own);
        return reducePutLines(b, a.reduce, nullptr, a.send + shards.begin(chunk, own), bytes, bytes, a.root);
      },
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          Room room{nullptr, 0};
          if (isRoot)
            room = {a.receive + shards.begin(chunk, ownerOf(peer)), shards.bytes(chunk, ownerOf(peer))};
          STRETTO_TRY(b.readLines(b.coop(), peer, room.to, room.bytes, Phase::kGather));
        }
        return Status{};
      });
}

}  // namespace stretto::algorithms
