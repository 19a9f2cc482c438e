// The backend of CPU ranks on several hosts: a Host whose peers on other hosts are reached by far links, and
// by nothing else. For these a window's links are rings in memory of this rank (rings.hpp) under the names
// that the algorithms know, so that link_channel.hpp runs unchanged; slots, lines and reading of peers'
// memory are for ranks of one host, and the planner chooses nothing that needs them. All waits move the far
// links. One rank of a communicator uses it, one thread at a time, as with Host.
#pragma once

#include <functional>

#include "links/net/far_links.hpp"
#include "primitives/host/host.hpp"

namespace stretto::links::net {

class SpreadHost final : public Host {
 public:
  // Asks those of `peers` (a bit each) that are on other hosts for the headers of their windows, which then
  // come into their stand-ins (communicator/far.hpp). Returns at once. Who has answered a moment ago and has
  // nothing new to say does not answer.
  using Ask = std::function<void(uint64_t peers)>;

  SpreadHost(int rank, std::span<const Peer> peers, const WindowLayout& layout, const WaitPolicy& policy,
             Importer* importer, FarLinks& links, Ask ask)
      : Host(rank, peers, layout, policy, importer), links_(links), ask_(std::move(ask)) {}

  Cell* linkAt(int peer, uint64_t chunk) {
    return links_.isFar(peer) ? links_.to(peer).slot(chunk) : Host::linkAt(peer, chunk);
  }
  const Cell* linkFrom(int source, uint64_t chunk) {
    return links_.isFar(source) ? links_.from(source).slot(chunk) : Host::linkFrom(source, chunk);
  }
  Cell* creditAt(int sender) {
    return links_.isFar(sender) ? links_.from(sender).released() : Host::creditAt(sender);
  }
  const Cell* creditFrom(int receiver) {
    return links_.isFar(receiver) ? links_.to(receiver).credits() : Host::creditFrom(receiver);
  }
  // SizesChunks (algorithms/link_channel.hpp).
  void sizeChunk(int peer, size_t bytes) {
    if (links_.isFar(peer)) links_.to(peer).setBytes(bytes);
  }
  Status checkChunk(int peer, size_t bytes);

  void signal(Coop coop, int peer, Cell* cell, uint64_t value);
  Status wait(Coop, int peer, const Cell* cell, uint64_t value) {
    STRETTO_TRY(until({.peer = peer}, cell, value));
    if (cell->tag == tag()) [[likely]]
      return kOkStatus;
    hear(peer);
    return mismatch(peer);
  }
  Status waitCount(Coop, int peer, const Cell* cell, uint64_t value) {
    return until({.peer = peer}, cell, value);
  }

  // Moves what can be moved. Not ok if a link to one of these peers (a bit each) is broken.
  Status progress(uint64_t peers = 0);
  // The end of an operation: all that was sent has left, so that no peer waits for this rank's next one.
  Status finish();
  // Asks a far peer for its calls, and waits a little for the answer.
  void hear(int peer);

 private:
  Status until(AwaitedWord awaited, const Cell* cell, uint64_t value);
  void wonder(uint64_t peers) const override { ask_(peers); }
  Status brokenLink(int peer);

  FarLinks& links_;
  const Ask ask_;
};

}  // namespace stretto::links::net
