// Some ranks of a backend as a backend of their own, for algorithms over links: its rank p is the p-th of the
// members. Links and their cursors are those of the whole, so stages of an operation follow each other
// without a word between them.
#pragma once

#include <span>

#include "algorithms/link_channel.hpp"

namespace stretto::algorithms {

template <ChunkBackend B>
class Subset {
 public:
  using Coop = typename B::Coop;

  // `self` is the place of this rank among the members; chunks between them have `mostInChunk` bytes at most.
  Subset(B& b, std::span<const int> members, int self, size_t mostInChunk)
      : b_(b), members_(members), self_(self), mostInChunk_(mostInChunk) {}

  int rank() const { return self_; }
  int ranks() const { return static_cast<int>(members_.size()); }
  Coop coop() const { return b_.coop(); }

  auto& cursors(int peer) { return b_.cursors(of(peer)); }
  Mailbox* linkAt(int peer, uint64_t chunk) { return b_.linkAt(of(peer), chunk); }
  const Mailbox* linkFrom(int source, uint64_t chunk) { return b_.linkFrom(of(source), chunk); }
  Mailbox* creditAt(int sender) { return b_.creditAt(of(sender)); }
  const Mailbox* creditFrom(int receiver) { return b_.creditFrom(of(receiver)); }
  uint64_t count(const Mailbox* mailbox) const { return b_.count(mailbox); }
  bool ready(const Mailbox* mailbox, uint64_t value) const { return b_.ready(mailbox, value); }

  void put(Coop coop, int peer, std::byte* to, const std::byte* from, size_t bytes) {
    b_.put(coop, of(peer), to, from, bytes);
  }
  void signal(Coop coop, int peer, Mailbox* mailbox, uint64_t value) {
    b_.signal(coop, of(peer), mailbox, value);
  }
  Status wait(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    return b_.wait(coop, of(peer), mailbox, value);
  }
  Status waitCount(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    return b_.waitCount(coop, of(peer), mailbox, value);
  }
  void reduce(Coop coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources,
              int sourceCount, size_t count, bool stream) {
    b_.reduce(coop, spec, to, sources, sourceCount, count, stream);
  }
  void copy(Coop coop, std::byte* to, const std::byte* from, size_t bytes, bool stream) {
    b_.copy(coop, to, from, bytes, stream);
  }

  // SizesChunks, and LendingBackend where the whole is.
  struct Has {
    static constexpr bool kSizesChunks = true;
    static constexpr bool kLends = LendingBackend<B>;
  };
  size_t mostInChunk() const { return mostInChunk_; }
  void sizeChunk(int peer, size_t bytes) { b_.sizeChunk(of(peer), bytes); }
  Status checkChunk(int peer, size_t bytes) { return b_.checkChunk(of(peer), bytes); }
  void readChunk(int peer) { b_.readChunk(of(peer)); }
  bool lends(int peer) const { return b_.lends(of(peer)); }
  void lend(int peer, const std::byte* from) { b_.lend(of(peer), from); }
  Status awaitLeft(int peer, uint64_t chunks) { return b_.awaitLeft(of(peer), chunks); }

 private:
  int of(int member) const { return members_[static_cast<size_t>(member)]; }

  B& b_;
  std::span<const int> members_;
  int self_;
  size_t mostInChunk_;
};

}  // namespace stretto::algorithms
