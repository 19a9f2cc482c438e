// How ranks of several hosts hear of each other.
#include "communicator/communicator.hpp"
#include "platform/futex.hpp"

namespace stretto::communicator {

// On the bootstrap's thread. Ranks of other hosts say how they are, and ask.
void Communicator::heard(int rank, std::span<const uint8_t> message) {
  bool asks = false;
  WindowHeader* const header = header_.load();
  if (message.empty() || header == nullptr) return nudged();
  const links::Link& link = connections_.links[static_cast<size_t>(rank)];
  if (link.standIn != nullptr) {
    if (!FarView::apply(message, *link.standIn, asks)) return;
    std::atomic_ref(header->bell).fetch_add(1, std::memory_order_release);
    platform::futexWake(&header->bell);
  }
  if (asks) show(false);
}

// Shows all other ranks what this one's header says, and asks for theirs. Whoever holds the lock makes the
// connection or ends it.
void Communicator::show(bool asks) {
  WindowHeader* const header = header_.load();
  if (header == nullptr) return;
  const std::unique_lock lock(membershipMutex_, std::try_to_lock);
  if (lock.owns_lock() && membership_ != nullptr) membership_->nudge(FarView::of(*header, asks));
}

}  // namespace stretto::communicator
