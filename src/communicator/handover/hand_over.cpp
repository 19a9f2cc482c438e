// How a communicator hands itself over to NCCL, and what it does with operations from then on.
#include "base/log.hpp"
#include "base/parameters.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/handover/foreign.hpp"

namespace stretto::communicator {

// Ranks that cannot be served here are served there from the beginning, all of them: nothing was enqueued
// yet.
Status Communicator::handOver() {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  std::string why = connections_.apart;
  if (why.empty()) {
    why = std::to_string(ranks_) + " ranks are more than this library serves (" + std::to_string(kMaxRanks) +
          ")";
  }
  auto made = Foreign::create(*membership_,
                              {rank_, ranks_, config_.device, timeout.value(), config_.given, why}, abort_);
  // Whoever ended the wait, this rank's abort or the loss of another, has said why.
  if (made.status().code == Code::kAborted && abort_.load() != 0) return usable();
  if (!made.ok()) return made.status();
  foreign_ = std::move(made.value());
  foreignNow_.store(foreign_.get());
  // An abort that came before there was something to abort.
  if (abort_.load() != 0) foreign_->abort();
  STRETTO_LOG(kInfo, kInit, "rank %d of %d: %s", rank_, ranks_, foreign_->words().c_str());
  return kOkStatus;
}

Status Communicator::runForeign(std::span<const Operation> operations) {
  const Status status = foreign_->run(operations);
  if (!status.ok() && status.code != Code::kInProgress) return status;
  counters_.operations += operations.size();
  for (const Operation& operation : operations) counters_.bytes += operation.bytes();
  return status;
}

// What NCCL noticed becomes this communicator's error.
Status Communicator::pollForeign() {
  if (state() != State::kReady) return usable();
  const Status status = foreign_->error();
  if (!status.ok()) markBroken(status, State::kFailed, lastError());
  return status;
}

}  // namespace stretto::communicator
