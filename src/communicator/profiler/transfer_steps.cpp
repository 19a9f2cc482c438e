#include "communicator/profiler/transfer_steps.hpp"

#include <algorithm>

#include "base/os.hpp"
#include "communicator/profiler/channels.hpp"
#include "platform/clock.hpp"

namespace stretto::communicator {

using namespace observe::profiler;
using executors::host::HostTransfer;

executors::host::TransferWatch* TransferSteps::begin(size_t chunkBytes, uint64_t at) {
  uint32_t together = 0;
  for (const Moving& moving : moving_) together |= moving.mask;
  const uint64_t now = (together & bit(Type::kKernelCh)) != 0 ? platform::realtimeNanoseconds() : 0;
  for (Moving& moving : moving_) {
    if ((moving.mask & bit(Type::kKernelCh)) != 0)
      moving.channel = startChannel(*session_, moving.p2p, {0, now}, at);
    startProxyOp(moving, chunkBytes, at);
  }
  return (together & kProxyOpBits) != 0 ? this : nullptr;
}

void TransferSteps::close(uint64_t at) {
  const uint64_t now = moving_.empty() ? 0 : platform::realtimeNanoseconds();
  for (Moving& moving : moving_) {
    // Open only if the transfer failed, or never left this rank.
    session_->stop(moving.step, at);
    session_->stop(moving.op, at);
    if (moving.channel != nullptr) stopChannel(*session_, moving.channel, now, at);
  }
  for (const Moving& moving : moving_) session_->stop(moving.p2p, at);
  moving_.clear();
  session_ = nullptr;
}

void TransferSteps::startProxyOp(Moving& moving, size_t chunkBytes, uint64_t at) const {
  if ((moving.mask & kProxyOpBits) == 0 || moving.transfer->peer == session_->rank()) return;
  const size_t steps = std::max<size_t>(1, (moving.transfer->bytes + chunkBytes - 1) / chunkBytes);
  DescriptorV7 descriptor = session_->describe(Type::kProxyOp, moving.p2p);
  descriptor.proxyOp = {os::processId(),
                        0,
                        moving.transfer->peer,
                        static_cast<int>(std::min<size_t>(steps, INT32_MAX)),
                        static_cast<int>(chunkBytes),
                        moving.transfer->isSend ? 1 : 0};
  moving.op = session_->start(descriptor, at);
  ArgumentsV4 none{};
  session_->record(moving.op, kOpInProgress, &none, at);
  startStep(moving, at);
}

void TransferSteps::startStep(Moving& moving, uint64_t at) const {
  if ((moving.mask & kProxyStepBits) == 0) return;
  DescriptorV7 descriptor = session_->describe(Type::kProxyStep, moving.op);
  descriptor.proxyStep = {moving.steps};
  moving.step = session_->start(descriptor, at);
  ArgumentsV4 none{};
  session_->record(moving.step, moving.transfer->isSend ? kStepSendPeerWait : kStepRecvWait, &none, at);
}

TransferSteps::Moving* TransferSteps::find(const HostTransfer& transfer) {
  const auto found = std::find_if(moving_.begin(), moving_.end(),
                                  [&](const Moving& one) { return one.transfer == &transfer; });
  return found == moving_.end() ? nullptr : &*found;
}

void TransferSteps::ready(const HostTransfer& transfer, size_t bytes) {
  Moving* const moving = find(transfer);
  if (moving == nullptr) return;
  ArgumentsV4 arguments;
  arguments.proxyStep.bytes = bytes;
  session_->record(moving->step, transfer.isSend ? kStepSendWait : kStepRecvGpuWait, &arguments, 0);
}

void TransferSteps::moved(const HostTransfer& transfer) {
  Moving* const moving = find(transfer);
  if (moving == nullptr) return;
  const uint64_t at = session_->now();
  session_->stop(moving->step, at);
  moving->step = nullptr;
  ++moving->steps;
  if (!transfer.finished) return startStep(*moving, at);
  session_->stop(moving->op, at);
  moving->op = nullptr;
}

}  // namespace stretto::communicator
