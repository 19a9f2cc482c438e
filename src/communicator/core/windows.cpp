#include "communicator/core/windows.hpp"

#include "base/parameters.hpp"
#include "communicator/core/turn.hpp"

namespace stretto::communicator {

// In a forked child nobody would complete the turn that an operation of the parent had.
Status SharedWindows::add(const void* handle, void* buffer, size_t bytes, Status refused) {
  STRETTO_TRY(self_.mayTouch());
  const Turn turn(queue_, queue_.take());
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  STRETTO_TRY(health_.usable());
  if (!turn.mine())
    return fail(Code::kAborted, "rank %d: aborted before the window was registered", self_.rank());
  STRETTO_TRY(plane_.joined("register"));
  DeviceEngine& device = submission_.device();
  if (!device.isOpen())
    return submission_.host().registerWindow(plane_.membership(), handle, buffer, bytes, refused,
                                             timeout.value());
  WindowRequest request;
  request.buffer = static_cast<std::byte*>(buffer);
  request.bytes = bytes;
  request.refused = refused;
  request.timeoutSeconds = timeout.value();
  return device.side().registerWindow(plane_.membership(), handle, request);
}

void SharedWindows::remove(const void* handle) {
  if (!self_.mayTouch().ok()) return;
  const Turn turn(queue_, queue_.take());
  if (!turn.holds()) return;  // the abort forgets all windows
  DeviceEngine& device = submission_.device();
  if (device.isOpen()) {
    device.side().deregisterWindow(handle, health_.abortWord());
  } else {
    submission_.host().oneSided().deregisterWindow(handle);
  }
}

// No turn is waited for: an operation that runs may need what the caller writes there.
Status SharedWindows::address(const void* handle, int peer, size_t offset, void** out) {
  const Hold hold(queue_);
  STRETTO_TRY(health_.usable());
  DeviceEngine& device = submission_.device();
  return device.isOpen() ? device.side().windowAddress(handle, peer, offset, out)
                         : submission_.host().oneSided().address(handle, peer, offset, out);
}

Status SharedWindows::check(const Operation& operation) {
  const Hold hold(queue_);
  if (!hold.holds()) return health_.whyLetGo();
  const DeviceEngine& device = submission_.device();
  return device.isOpen() ? device.side().checkOneSided(operation)
                         : submission_.host().oneSided().check(operation);
}

}  // namespace stretto::communicator
