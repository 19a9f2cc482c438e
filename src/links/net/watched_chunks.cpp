#include "links/net/watched_chunks.hpp"

namespace stretto::links::net {

void WatchedChunks::published(int peer, const SendRing& ring) {
  if (!sending_.has(peer)) {
    sending_.add(peer);
    const uint64_t before = ring.published() - 1;
    told_[static_cast<size_t>(peer)] = {before, before};
  }
  watch_->handsOver(peer);
}

void WatchedChunks::moved(FarLinks& links) {
  for (int peer = sending_.next(-1); peer >= 0; peer = sending_.next(peer)) {
    const SendRing& ring = links.to(peer);
    Told& told = told_[static_cast<size_t>(peer)];
    for (; told.begun < ring.posted(); ++told.begun) watch_->begins(peer);
    for (; told.left < ring.credits()->count; ++told.left) watch_->leaves(peer);
  }
}

}  // namespace stretto::links::net
