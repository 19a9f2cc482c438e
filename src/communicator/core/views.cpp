// How ranks of several hosts hear of each other.
#include "communicator/core/communicator.hpp"
#include "platform/clock.hpp"
#include "platform/futex.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {

// On the bootstrap's thread. Ranks of other hosts say how they are, and ask.
void Communicator::heard(int rank, std::span<const uint8_t> message) {
  uint64_t asks = 0;
  WindowHeader* const header = header_.load();
  if (message.empty() || header == nullptr) return nudged();
  const links::Link& link = connections_.links[static_cast<size_t>(rank)];
  if (link.standIn != nullptr) {
    OperationLog log = connections_.operationLog(rank);
    if (!FarView::apply(message, *link.standIn, asks, onDevice() ? &log : nullptr)) return;
    if (callsNothingMore(*link.standIn)) somebodyLeft_.store(true);
    std::atomic_ref(header->bell).fetch_add(1, std::memory_order_release);
    platform::futexWake(&header->bell);
  }
  if ((asks >> rank_ & 1) != 0) answer();
}

// Shows all other ranks what this one's header says, and asks some (a bit each) for theirs. Whoever holds the
// lock makes the connection or ends it.
void Communicator::show(uint64_t asks) {
  const std::unique_lock lock(membershipMutex_, std::try_to_lock);
  if (lock.owns_lock()) showNow(asks);
}

void Communicator::answer() {
  const std::unique_lock lock(membershipMutex_, std::try_to_lock);
  WindowHeader* const header = header_.load();
  if (!lock.owns_lock() || header == nullptr) return;
  if (shown_.isOld(viewOf(*header, 0), platform::monotonicNanoseconds())) showNow(0);
}

std::vector<uint8_t> Communicator::viewOf(const WindowHeader& header, uint64_t asks) const {
  const OperationLog log = connections_.operationLog(rank_);
  return FarView::of(header, asks, onDevice() ? &log : nullptr);
}

// By membershipMutex_.
void Communicator::showNow(uint64_t asks) {
  WindowHeader* const header = header_.load();
  if (header == nullptr || membership_ == nullptr) return;
  const std::vector<uint8_t> view = viewOf(*header, asks);
  shown_.note(view, platform::monotonicNanoseconds());
  membership_->nudge(view);
}

}  // namespace stretto::communicator
