#include "communicator/core/queue.hpp"

#include "platform/cuda/device.hpp"

namespace stretto::communicator {

void Queue::completeInOrder(uint64_t turn, std::function<void()> inItsPlace) {
  turns_.completeInOrder(turn, std::move(inItsPlace));
  wasHeard();
}

// The answer that ended the wait is kept: asked again, `stop` may say something else.
Status Queue::await(uint64_t turn, const bootstrap::StopCheck& stop) {
  Status why;
  const bool hasCome = turns_.await(turn, [&] {
    if (stop) why = stop();
    return !why.ok() || health_.isAborted();
  });
  if (hasCome) return kOkStatus;
  return why.ok() ? health_.whyAborted() : why;
}

// An abort or destroy that met an operation which did not end in time has left the rest to its end.
void Queue::wasHeard() {
  if (!closed_.load(std::memory_order_seq_cst)) [[likely]]
    return;
  if (turns_.quiet() && self_.isOfThisProcess()) drained_();
}

bool Queue::close() {
  if (!closed_.exchange(true)) turns_.listen();
  turns_.fenceOperations();
  return turns_.quiet();
}

std::shared_ptr<executors::host::Stream> Queue::worker() {
  const std::lock_guard lock(workerMutex_);
  if (worker_ != nullptr) return worker_;
  std::function<void()> begins;
  if (self_.onDevice()) begins = [device = self_.config().device] { (void)platform::cuda::stayOn(device); };
  auto made = std::make_shared<executors::host::Stream>(&watch_, std::move(begins));
  if (!closed_.load()) worker_ = made;  // else nobody would end it
  return made;
}

void Queue::endWorker() {
  std::shared_ptr<executors::host::Stream> last;
  const std::lock_guard lock(workerMutex_);
  last = std::move(worker_);
}

}  // namespace stretto::communicator
