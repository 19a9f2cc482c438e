#include "communicator/handover/handed_over.hpp"

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "primitives/peer.hpp"

namespace stretto::communicator {

Status HandedOver::begin(std::string why) {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  const int rank = self_.rank();
  const int ranks = self_.ranks();
  if (why.empty()) {
    why = std::to_string(ranks) + " ranks are more than this library serves (" + std::to_string(kMaxRanks) +
          ")";
  }
  const Config& config = self_.config();
  auto made =
      Foreign::create(plane_.membership(), {rank, ranks, config.device, timeout.value(), config.given, why},
                      health_.abortWord());
  // Whoever ended the wait, this rank's abort or the loss of another, has said why.
  if (made.status().code == Code::kAborted && health_.isAborted()) return health_.usable();
  if (!made.ok()) return made.status();
  foreign_ = std::move(made.value());
  now_.store(foreign_.get());
  // An abort that came before there was something to abort.
  if (health_.isAborted()) foreign_->abort();
  STRETTO_LOG(kInfo, kInit, "rank %d of %d: %s", rank, ranks, foreign_->words().c_str());
  return kOkStatus;
}

Status HandedOver::run(std::span<const Operation> operations, Journal& journal) {
  const Status status = foreign_->run(operations);
  if (!status.ok() && status.code != Code::kInProgress) return status;
  for (const Operation& operation : operations) journal.count(operation);
  return status;
}

Status HandedOver::poll() {
  if (health_.state() != State::kReady) return health_.usable();
  const Status status = foreign_->error();
  if (!status.ok()) health_.markBroken(status, State::kFailed, lastError());
  return status;
}

void HandedOver::end() {
  if (get() == nullptr) return;
  if (health_.state() == State::kFinalised) (void)foreign_->destroy();
  foreign_->abort();  // nothing, after that
}

void HandedOver::abort() {
  if (get() != nullptr) foreign_->abort();
}

}  // namespace stretto::communicator
