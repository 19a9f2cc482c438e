// The backend of CPU ranks on several hosts. It is a Host with one difference: a peer on another host is
// reached by links alone, and the slots of such a link lie in a ring in this rank's memory (rings.hpp), not
// in the peer's window. Both kinds of slots are had by the same members (linkAt, linkFrom, ...), so
// link_channel.hpp runs unchanged. What needs shared memory (mailboxes, slots of exchanges, reading a peer's
// buffer) works between ranks of one host only; the planner chooses nothing of it for a communicator over
// hosts. Every wait, whatever it waits for, also moves the bytes of the far links.
//
// Threads: one at a time, as with Host. One object for each rank of a communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "links/net/far_links.hpp"
#include "links/net/host_map.hpp"
#include "links/net/watched_chunks.hpp"
#include "primitives/host/host.hpp"

namespace stretto::links::net {

class SpreadHost final : public Host {
 public:
  // Asks those of `peers` that are on other hosts for the headers of their windows, which then come into
  // their stand-ins (communicator/core/far.hpp). Returns at once. Who has answered a moment ago and has
  // nothing new to say does not answer.
  using Ask = std::function<void(const RankSet& peers)>;

  // How ranks of other hosts are reached. Links, map and what is in sight outlive the backend.
  struct Far {
    FarLinks& links;
    const HostMap& map;
    PeersInSight sight;
    Ask ask;
  };
  SpreadHost(int rank, std::span<const Peer> peers, const WindowLayout& layout, const WaitPolicy& policy,
             Importer* importer, Far far)
      : Host(rank, peers, layout, policy, importer, far.sight),
        links_(far.links),
        places_(far.map),
        mostInChunk_(places_.perHost() == 1 ? links_.chunkBytes() : layout.linkChunk),
        ask_(std::move(far.ask)),
        cursors_(peers.size()) {}

  struct Has {
    static constexpr bool kSizesChunks = true;
    static constexpr bool kLends = true;
  };
  // Of as many peers as there are on all hosts.
  LinkCursors& cursors(int peer) { return cursors_[static_cast<size_t>(peer)]; }
  Mailbox* linkAt(int peer, uint64_t chunk) {
    return links_.isFar(peer) ? links_.to(peer).slot(chunk) : Host::linkAt(peer, chunk);
  }
  const Mailbox* linkFrom(int source, uint64_t chunk) {
    return links_.isFar(source) ? links_.from(source).slot(chunk) : Host::linkFrom(source, chunk);
  }
  Mailbox* creditAt(int sender) {
    return links_.isFar(sender) ? links_.from(sender).released() : Host::creditAt(sender);
  }
  const Mailbox* creditFrom(int receiver) {
    return links_.isFar(receiver) ? links_.to(receiver).credits() : Host::creditFrom(receiver);
  }
  // SizesChunks (algorithms/link_channel.hpp). The most is equal on all ranks: a chunk may pass near links
  // and far ones.
  size_t mostInChunk() const { return mostInChunk_; }
  // SpreadBackend (algorithms/stages.hpp).
  const HostMap& places() const { return places_; }
  size_t mostInNearChunk() const { return layout().linkChunk; }
  size_t mostInFarChunk() const { return links_.chunkBytes(); }
  // Whether the net is this library's own TCP, and no plugin's.
  bool isOverSockets() const { return std::string_view(links_.netName()) == "tcp"; }
  void sizeChunk(int peer, size_t bytes) {
    if (!links_.isFar(peer)) return;
    links_.to(peer).setBytes(bytes);
    if (chunks_.watch() != nullptr) [[unlikely]]
      chunks_.watch()->fills(peer, bytes);
  }
  Status checkChunk(int peer, size_t bytes);
  void readChunk(int peer) {
    if (chunks_.watch() != nullptr && links_.isFar(peer)) [[unlikely]]
      chunks_.watch()->isRead(peer);
  }
  // LendingBackend (algorithms/link_channel.hpp).
  bool lends(int peer) const { return links_.isFar(peer) && links_.lends(); }
  void lend(int peer, const std::byte* from) { links_.to(peer).lend(from); }
  Status awaitLeft(int peer, uint64_t chunks);

  void signal(Coop coop, int peer, Mailbox* mailbox, uint64_t value);
  Status wait(Coop, int peer, const Mailbox* mailbox, uint64_t value) {
    if (chunks_.watch() != nullptr && links_.isFar(peer)) [[unlikely]]
      chunks_.watch()->waitsForData(peer);
    STRETTO_TRY(until({.peer = peer}, mailbox, value));
    if (mailbox->tag == tag()) [[likely]]
      return kOkStatus;
    hear(peer);
    return mismatch(peer);
  }
  Status waitCount(Coop, int peer, const Mailbox* mailbox, uint64_t value) {
    if (chunks_.watch() != nullptr && links_.isFar(peer)) [[unlikely]]
      chunks_.watch()->waitsForRoom(peer);
    return until({.peer = peer}, mailbox, value);
  }

  // Who is told of the far chunks of what runs next. Null: nobody.
  void setWatch(ChunkWatch* watch) { chunks_.setWatch(watch, cursors_.size()); }

  // Moves what can be moved. Not ok if a link to one of these peers is broken.
  Status progress(const RankSet& peers = {});
  // The end of an operation: all that was sent has left, so that no peer waits for this rank's next one.
  Status finish();
  // The end of one that failed: its buffers are the caller's again.
  Status giveBack(Status why) {
    if (why.ok()) return why;
    const std::string words = lastError();
    links_.giveBack();
    setLastError(words);
    return why;
  }
  Status isWithUs(int peer, const char* what);
  // Asks a far peer for its calls, and waits a little for the answer.
  void hear(int peer);

 private:
  // Moves what can be moved until `done`.
  template <typename Done>
  Status await(AwaitedWord awaited, Done done);
  Status until(AwaitedWord awaited, const Mailbox* mailbox, uint64_t value);
  void wonder(const RankSet& peers) const override { ask_(peers); }
  bool isOnItsWay(int peer) const override { return links_.isFar(peer) && links_.isOnItsWay(peer); }
  Status brokenLink(int peer);
  bool isGoneForLong(int peer);
  void move() {
    links_.progress();
    if (chunks_.watch() != nullptr) [[unlikely]]
      chunks_.moved(links_);
  }

  FarLinks& links_;
  const HostMap& places_;
  const size_t mostInChunk_;
  const Ask ask_;
  std::vector<LinkCursors> cursors_;  // by rank
  WatchedChunks chunks_;
  std::map<int, uint64_t> goneSince_;  // ticks when isWithUs() first knew that a far peer has left
};

}  // namespace stretto::links::net
