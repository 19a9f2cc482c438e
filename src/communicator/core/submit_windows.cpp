// Windows that the ranks of a communicator register together, and what can be asked of them.
#include "base/parameters.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/turn.hpp"

namespace stretto::communicator {

// Windows take turns like operations, so that an abort on another thread finds them under way.
// In a forked child nobody would complete the turn that an operation of the parent had.
Status Communicator::registerWindow(const void* handle, void* buffer, size_t bytes, Status refused) {
  STRETTO_TRY(mayTouch());
  const Turn turn(*this, takeTurn());
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  STRETTO_TRY(usable());
  if (!turn.mine())
    return stretto::fail(Code::kAborted, "rank %d: aborted before the window was registered", rank_);
  STRETTO_TRY(connected("register"));
  if (device_ == nullptr) {
    if (refused.ok()) refused = refuseDeviceMemory("ncclCommWindowRegister", "window", buffer, rank_);
    return oneSided_.registerWindow(
        *membership_, {handle, static_cast<std::byte*>(buffer), bytes, refused, timeout.value()});
  }
  WindowRequest request;
  request.buffer = static_cast<std::byte*>(buffer);
  request.bytes = bytes;
  request.refused = refused;
  request.timeoutSeconds = timeout.value();
  return device_->registerWindow(*membership_, handle, request);
}

void Communicator::deregisterWindow(const void* handle) {
  if (!mayTouch().ok()) return;
  const Turn turn(*this, takeTurn());
  if (!turn.holds()) return;  // the abort forgets all windows
  if (device_ != nullptr) {
    device_->deregisterWindow(handle, abort_);
  } else {
    oneSided_.deregisterWindow(handle);
  }
}

// No turn is waited for: an operation that runs may need what the caller writes there.
Status Communicator::windowAddress(const void* handle, int peer, size_t offset, void** out) {
  const Hold hold(*this);
  STRETTO_TRY(usable());
  return device_ == nullptr ? oneSided_.address(handle, peer, offset, out)
                            : device_->windowAddress(handle, peer, offset, out);
}

Status Communicator::checkOneSided(const Operation& operation) {
  const Hold hold(*this);
  if (!hold.holds()) return usable();
  return device_ == nullptr ? oneSided_.check(operation) : device_->checkOneSided(operation);
}

}  // namespace stretto::communicator
