// The chunks of one operation to and from ranks on other hosts, for somebody who is told of each: who that
// is, and how much it has been told of those that the net sends. Nobody is told of most operations, and then
// one null pointer is all that is looked at.
//
// Invariant: of each ring that has a chunk of this operation, `begun` chunks were told to have begun and
// `left` to have left, chunks of earlier operations counted as told. Memory: a pair of numbers for each rank,
// from the first watch on.
//
// Threads: one at a time, the one that runs the operation, as with SpreadHost, whose part this is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rank_set.hpp"
#include "links/net/chunk_watch.hpp"
#include "links/net/far_links.hpp"

namespace stretto::links::net {

class WatchedChunks {
 public:
  // Null: nobody is told any more. To be changed between operations.
  void setWatch(ChunkWatch* watch, size_t ranks) {
    watch_ = watch;
    sending_ = {};
    if (watch != nullptr && told_.size() < ranks) told_.resize(ranks);
  }
  // Null if nobody is told.
  ChunkWatch* watch() const { return watch_; }

  // Behind a look at watch(). A chunk to `peer` was published in `ring`.
  void published(int peer, const SendRing& ring);
  // Rings may have moved.
  void moved(FarLinks& links);

 private:
  struct Told {
    uint64_t begun = 0;
    uint64_t left = 0;
  };

  ChunkWatch* watch_ = nullptr;
  RankSet sending_;         // to whom this operation has sent anything
  std::vector<Told> told_;  // by rank
};

}  // namespace stretto::links::net
