// Links with credits: the way of everything in which not every rank hears from every rank (send, receive,
// broadcast, reduce, gather, scatter, rings and trees). One ordered pair of ranks is a ring of kLinkDepth
// slots in the receiver's window. The sender's chunk k goes to slot k mod depth as soon as fewer than depth
// chunks are unacknowledged; the receiver hands back credit every half depth. Chunks of at most
// Mailbox::kInlineBytes travel inside the slot's mailbox, in the cache line that says they are there.
//
// A backend may have links of its own (LinkingBackend): several warps of threads then run an algorithm at the
// same time, each with every n-th place of a ring for itself, which is why all of them make equally many
// exchanges, the last ones empty (Chunks). Each warp has two places of a ring at least: one is held while the
// next is waited for.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "algorithms/shape.hpp"
#include "base/anywhere.hpp"
#include "base/status.hpp"
#include "platform/prefetch.hpp"
#include "primitives/backend.hpp"

namespace stretto::algorithms {

STRETTO_ANYWHERE inline std::byte* payloadOf(Mailbox* mailbox, size_t bytes) {
  return bytes <= Mailbox::kInlineBytes ? mailbox->inlined : reinterpret_cast<std::byte*>(mailbox + 1);
}

template <typename B>
concept LinkingBackend = requires {
  requires B::Has::kLinks;
};
// acquireLink and awaitLink give a place that stays valid until publishLink and releaseLink.
template <typename B>
concept LinkMembers = requires(B b, int peer, size_t bytes, std::byte* to, const std::byte* from) {
  { b.acquireLink(peer, bytes, to) } -> std::same_as<Status>;
  {b.publishLink(peer)};
  { b.awaitLink(peer, from) } -> std::same_as<Status>;
  {b.releaseLink(peer)};
};

// The links of all other backends: rings of mailboxes, with the cursors of this rank and the credits of both
// ends. Counts are looked at (count, ready) or waited for (waitCount: no tag is compared, as credits outlive
// the operation that gave them).
template <typename B>
concept MailboxLinks = requires(B b, int peer, uint64_t chunk, const Mailbox* mailbox, uint64_t value) {
  { b.cursors(peer).sent } -> std::same_as<uint64_t&>;
  { b.cursors(peer).received } -> std::same_as<uint64_t&>;
  { b.cursors(peer).credited } -> std::same_as<uint64_t&>;
  { b.linkAt(peer, chunk) } -> std::same_as<Mailbox*>;
  { b.linkFrom(peer, chunk) } -> std::same_as<const Mailbox*>;
  { b.creditAt(peer) } -> std::same_as<Mailbox*>;
  { b.creditFrom(peer) } -> std::same_as<const Mailbox*>;
  { b.count(mailbox) } -> std::same_as<uint64_t>;
  { b.ready(mailbox, value) } -> std::same_as<bool>;
  { b.waitCount(b.coop(), peer, mailbox, value) } -> std::same_as<Status>;
};

// Chunks of such a backend may travel as messages: it says how long they may be (mostInChunk), is told how
// long the next one to a peer is before that is published (sizeChunk), says of the next one from a peer,
// which has come, whether it is as long as it must be (checkChunk), and is told when that has been read
// (readChunk).
template <typename B>
concept SizesChunks = requires {
  requires B::Has::kSizesChunks;
};
template <typename B>
concept SizingMembers = requires(B b, const B& same, int peer, size_t bytes) {
  { same.mostInChunk() } -> std::same_as<size_t>;
  {b.sizeChunk(peer, bytes)};
  { b.checkChunk(peer, bytes) } -> std::same_as<Status>;
  {b.readChunk(peer)};
};

// To some peers (lends) such a backend sends chunks from where they lie (lend), without a copy in a slot. A
// chunk that is lent stays as it is until the operation ends, until awaitLeft() says that so many chunks have
// left, or until something has come from the peer that it could not say before it had the chunk.
template <typename B>
concept LendingBackend = requires {
  requires B::Has::kLends;
};
template <typename B>
concept LendingMembers = requires(B b, int peer, const std::byte* from, uint64_t chunks) {
  { b.lends(peer) } -> std::same_as<bool>;
  {b.lend(peer, from)};
  { b.awaitLeft(peer, chunks) } -> std::same_as<Status>;
};

// As KeepsItsClaims of primitives/backend.hpp.
template <typename B>
concept KeepsClaimsOfLinks = implies(LinkingBackend<B>, LinkMembers<B>) &&
    implies(SizesChunks<B>, SizingMembers<B>) && implies(LendingBackend<B>, LendingMembers<B>);

// What algorithms over links need.
template <typename B>
concept ChunkBackend = AnyBackend<B> &&
    (LinkingBackend<B> || MailboxLinks<B>)&&(SizesChunks<B> || requires(B b) {
      { b.layout().linkChunk } -> std::convertible_to<size_t>;
    });

// Most bytes that one chunk holds.
template <ChunkBackend B>
STRETTO_ANYWHERE size_t mostInChunk(const B& b) {
  if constexpr (SizesChunks<B>) {
    return b.mostInChunk();
  } else {
    return b.layout().linkChunk;
  }
}

// Where chunks only go one way, as between a root and its peers, one end runs ahead of the other until the
// ring is full or empty, and both fetch lines into their caches ahead of time. Where messages are answered
// nobody is ahead, and a line that was fetched too early was taken from who is about to use it.
enum class Flow : uint8_t { kBothWays, kOneWay };

// The sending end towards one peer. Cursors live in the backend and survive operations.
template <ChunkBackend B, Flow flow = Flow::kBothWays>
class Outlet {
 public:
  STRETTO_ANYWHERE Outlet(B& backend, int peer) : b_(backend), peer_(peer) {}

  STRETTO_ANYWHERE int peer() const { return peer_; }
  // True when the next chunk has a free slot. The credit's line is looked at when what it said is used up.
  STRETTO_ANYWHERE bool open() const {
    auto& cursors = b_.cursors(peer_);
    if (cursors.sent - cursors.credited < WindowLayout::kLinkDepth) return true;
    cursors.credited = b_.count(b_.creditFrom(peer_));
    return cursors.sent - cursors.credited < WindowLayout::kLinkDepth;
  }
  // Waits for a free slot; `place` is then where the chunk's `bytes` go.
  STRETTO_ANYWHERE Status acquire(size_t bytes, std::byte*& place) {
    if constexpr (LinkingBackend<B>) {
      return b_.acquireLink(peer_, bytes, place);
    } else {
      if (!open()) STRETTO_TRY(b_.waitCount(b_.coop(), peer_, b_.creditFrom(peer_), owed()));
      if constexpr (SizesChunks<B>) b_.sizeChunk(peer_, bytes);
      place = payloadOf(mailbox(), bytes);
      return kOkStatus;
    }
  }
  // Makes the chunk that acquire() gave the place for visible.
  STRETTO_ANYWHERE void publish() {
    if constexpr (LinkingBackend<B>) {
      b_.publishLink(peer_);
    } else {
      Mailbox* const at = mailbox();
      b_.signal(b_.coop(), peer_, at, ++b_.cursors(peer_).sent);
    }
  }
  STRETTO_ANYWHERE Status send(const std::byte* from, size_t bytes) {
    std::byte* place = nullptr;
    STRETTO_TRY(acquire(bytes, place));
    b_.put(b_.coop(), peer_, place, from, bytes);
    publish();
    if constexpr (flow == Flow::kOneWay && !LinkingBackend<B>) fetchAhead(bytes);
    return kOkStatus;
  }

  // Whether lend() makes no copy. Of a small chunk it is as good.
  STRETTO_ANYWHERE bool lends(size_t bytes) const {
    constexpr size_t kSmall = 4096;
    if constexpr (LendingBackend<B>) return bytes > kSmall && b_.lends(peer_);
    return false;
  }
  // The same as send(), for bytes that may be lent.
  STRETTO_ANYWHERE Status lend(const std::byte* from, size_t bytes) {
    if constexpr (LendingBackend<B>) {
      if (lends(bytes)) {
        std::byte* unused = nullptr;
        STRETTO_TRY(acquire(bytes, unused));
        b_.lend(peer_, from);
        publish();
        return kOkStatus;
      }
    }
    return send(from, bytes);
  }
  // All that was lent has left, but for the last `after` chunks.
  STRETTO_ANYWHERE Status awaitLeft(uint64_t after) {
    if constexpr (LendingBackend<B>) return b_.awaitLeft(peer_, b_.cursors(peer_).sent - after);
    return kOkStatus;
  }

 private:
  STRETTO_ANYWHERE Mailbox* mailbox() const { return b_.linkAt(peer_, b_.cursors(peer_).sent); }
  // The next place, which the peer read last, while it polls another: as much of it as this chunk took, if
  // that is little. And the credits before they are needed.
  STRETTO_ANYWHERE void fetchAhead(size_t bytes) const {
    constexpr size_t kLittle = 512;
    const auto& cursors = b_.cursors(peer_);
    const Mailbox* const next = mailbox();
    platform::prefetchToWrite(next);
    if (bytes > Mailbox::kInlineBytes && bytes <= kLittle) {
      for (size_t at = 0; at < bytes; at += kMailboxBytes) {
        platform::prefetchToWrite(reinterpret_cast<const std::byte*>(next + 1) + at);
      }
    }
    if (cursors.sent - cursors.credited == WindowLayout::kLinkDepth - 1) {
      platform::prefetchToRead(b_.creditFrom(peer_));
    }
  }
  // Chunks that must have been acknowledged before the next may go, when the ring is full.
  STRETTO_ANYWHERE uint64_t owed() const { return b_.cursors(peer_).sent + 1 - WindowLayout::kLinkDepth; }

  B& b_;
  int peer_;
};

// The receiving end from one peer.
template <ChunkBackend B, Flow flow = Flow::kBothWays>
class Inlet {
 public:
  STRETTO_ANYWHERE Inlet(B& backend, int peer) : b_(backend), peer_(peer) {}

  STRETTO_ANYWHERE int peer() const { return peer_; }
  STRETTO_ANYWHERE bool arrived() const { return b_.ready(mailbox(), next()); }
  // Waits for the next chunk of `bytes`; `place` stays valid until release().
  STRETTO_ANYWHERE Status await(size_t bytes, const std::byte*& place) {
    if constexpr (LinkingBackend<B>) {
      return b_.awaitLink(peer_, place);
    } else {
      const Mailbox* const here = mailbox();
      // If this chunk is there already, the peer is ahead, and has perhaps written the next place as well.
      if (flow == Flow::kOneWay && bytes <= Mailbox::kInlineBytes && b_.ready(here, next())) {
        platform::prefetchToRead(b_.linkFrom(peer_, next()));
      }
      STRETTO_TRY(b_.wait(b_.coop(), peer_, here, next()));
      if constexpr (SizesChunks<B>) STRETTO_TRY(b_.checkChunk(peer_, bytes));
      place = payloadOf(const_cast<Mailbox*>(here), bytes);
      return kOkStatus;
    }
  }
  // The chunk has been read; its slot may be used again.
  STRETTO_ANYWHERE void release() {
    if constexpr (LinkingBackend<B>) {
      b_.releaseLink(peer_);
    } else {
      if constexpr (SizesChunks<B>) b_.readChunk(peer_);
      const uint64_t received = ++b_.cursors(peer_).received;
      constexpr uint64_t kInterval = WindowLayout::kLinkDepth / 2;
      if (received % kInterval == 0) b_.signal(b_.coop(), peer_, b_.creditAt(peer_), received);
      if (flow == Flow::kOneWay && (received + 1) % kInterval == 0) {
        platform::prefetchToWrite(b_.creditAt(peer_));  // the peer has looked there
      }
    }
  }
  STRETTO_ANYWHERE Status receive(std::byte* to, size_t bytes, bool stream) {
    const std::byte* place = nullptr;
    STRETTO_TRY(await(bytes, place));
    b_.copy(b_.coop(), to, place, bytes, stream);
    release();
    return kOkStatus;
  }

 private:
  STRETTO_ANYWHERE const Mailbox* mailbox() const { return b_.linkFrom(peer_, b_.cursors(peer_).received); }
  STRETTO_ANYWHERE uint64_t next() const { return b_.cursors(peer_).received + 1; }

  B& b_;
  int peer_;
};

// All that was lent to anyone has left, but for the last `after` chunks to each.
template <ChunkBackend B>
STRETTO_ANYWHERE Status awaitAllLeft(B& b, uint64_t after) {
  if constexpr (LendingBackend<B>) {
    for (int step = 1; step < b.ranks(); ++step)
      STRETTO_TRY(Outlet<B>(b, rotated(b.rank(), step, b.ranks())).awaitLeft(after));
  }
  return kOkStatus;
}

template <ChunkBackend B>
using OneWayOutlet = Outlet<B, Flow::kOneWay>;
template <ChunkBackend B>
using OneWayInlet = Inlet<B, Flow::kOneWay>;

// Most that one chunk holds: in bytes, and in whole elements, at least one.
template <ChunkBackend B>
STRETTO_ANYWHERE size_t linkBytes(const B& b, const Arguments& a) {
  return std::min<size_t>(a.chunkBytes, mostInChunk(b));
}
template <ChunkBackend B>
STRETTO_ANYWHERE size_t linkElements(const B& b, const Arguments& a) {
  const size_t largest = std::max(a.count, a.largest);
  const bool isOne = largest * a.elementBytes <= linkBytes(b, a);  // small, and spared the division
  return isOne ? largest : elementsIn(linkBytes(b, a), a.elementBytes);
}

}  // namespace stretto::algorithms
