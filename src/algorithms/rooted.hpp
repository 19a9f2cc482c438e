// Broadcast, reduce, gather and scatter as exchanges in lines: who has nothing for a peer sends it an empty
// line. So every rank hears from every rank, as slots demand, and data move without credits. One hop.
#pragma once

#include "algorithms/exchange.hpp"

namespace stretto::algorithms {

// What a rank has for `peer`, and where what `peer` has for it goes; nothing if null.
struct Parcel {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
};

// `parcel(peer)` for one block of `bytes` at most in each direction.
template <Backend B, typename ParcelOf>
STRETTO_ANYWHERE Status exchangeParcels(B& b, size_t bytes, ParcelOf parcel) {
  const Chunks chunks(bytes, b.lineBytes());
  return pipeline(
      b, chunks.size(),
      [&](size_t index) {
        const Span chunk = chunks[index];
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          const std::byte* from = parcel(peer).from;
          b.putLines(b.coop(), peer, from == nullptr ? nullptr : from + chunk.begin,
                     from == nullptr ? 0 : chunk.size);
        }
        const Parcel own = parcel(b.rank());
        if (own.to != nullptr)
          b.copy(b.coop(), own.to + chunk.begin, own.from + chunk.begin, chunk.size, false);
        return Status{};
      },
      [&](size_t index) {
        const Span chunk = chunks[index];
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), step, b.ranks());
          std::byte* to = parcel(peer).to;
          STRETTO_TRY(b.readLines(b.coop(), peer, to == nullptr ? nullptr : to + chunk.begin,
                                  to == nullptr ? 0 : chunk.size));
        }
        return Status{};
      });
}

template <Backend B>
STRETTO_ANYWHERE Status broadcastPushLines(B& b, const Arguments& a) {
  return exchangeParcels(b, a.bytes(), [&](int peer) {
    Parcel parcel;
    if (b.rank() == a.root) parcel.from = a.send;
    if (peer == a.root) parcel.to = a.receive;
    return parcel;
  });
}

template <Backend B>
STRETTO_ANYWHERE Status gatherPushLines(B& b, const Arguments& a) {
  return exchangeParcels(b, a.bytes(), [&](int peer) {
    Parcel parcel;
    if (peer == a.root) parcel.from = a.send;
    if (b.rank() == a.root) parcel.to = a.receive + a.block(peer);
    return parcel;
  });
}

template <Backend B>
STRETTO_ANYWHERE Status scatterPushLines(B& b, const Arguments& a) {
  return exchangeParcels(b, a.bytes(), [&](int peer) {
    Parcel parcel;
    if (b.rank() == a.root) parcel.from = a.send + a.block(peer);
    if (peer == a.root) parcel.to = a.receive;
    return parcel;
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

}  // namespace stretto::algorithms
