#include "communicator/core/resources.hpp"

#include "communicator/core/turn.hpp"

namespace stretto::communicator {

Status Resources::suspend() {
  const int rank = self_.rank();
  if (self_.onDevice()) {
    return fail(Code::kInvalidUsage, "rank %d: memory of GPUs cannot be given back for a while yet", rank);
  }
  const Turn turn(queue_, queue_.take());
  STRETTO_TRY(health_.usable());
  if (!turn.mine()) return fail(Code::kAborted, "rank %d: aborted before it was suspended", rank);
  submission_.host().releaseMemory();
  suspended_.store(true);
  return kOkStatus;
}

Status Resources::resume() {
  STRETTO_TRY(health_.usable());
  if (suspended_.exchange(false)) return kOkStatus;
  return fail(Code::kInvalidUsage, "rank %d: the communicator is not suspended", self_.rank());
}

size_t Resources::suspendableBytes() {
  const Hold hold(queue_);
  return !hold.holds() || isSuspended() ? 0 : submission_.host().releasableBytes();
}

size_t Resources::windowBytes() {
  const Hold hold(queue_);
  if (!hold.holds()) return 0;
  if (submission_.device().isOpen()) return submission_.device().side().windowBytes();
  return connections_.region == nullptr ? 0 : connections_.region->bytes();
}

WaitCounters Resources::waitCounters() {
  const Hold hold(queue_);
  return hold.holds() ? submission_.host().waitCounters() : WaitCounters{};
}

}  // namespace stretto::communicator
