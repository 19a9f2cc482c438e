// Operations, windows and splits of one communicator run one after another, in the order of the calls, on
// whatever thread: each call takes a turn. For communicator/ only.
#pragma once

#include <chrono>

#include "communicator/communicator.hpp"

namespace stretto::communicator {

// A turn, waited for when made and completed when destroyed. One that has not come when the communicator is
// aborted, or when `stop` is not ok, is given up: not mine().
class Communicator::Turn {
 public:
  Turn(Communicator& owner, uint64_t number, const bootstrap::StopCheck& stop = {})
      : owner_(owner), number_(number) {
    if (owner_.completed_.load(std::memory_order_acquire) != number_) waitForOthers(stop);
  }
  ~Turn() { owner_.completeTurn(number_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  uint64_t number() const { return number_; }
  bool mine() const { return mine_; }

 private:
  // Bounded: every operation before this one ends by its own deadline.
  void waitForOthers(const bootstrap::StopCheck& stop) {
    constexpr auto kBetweenChecks = std::chrono::milliseconds(20);
    const auto decided = [&] {
      mine_ = owner_.completed_.load() == number_;
      return mine_ || owner_.abort_.load() != 0;
    };
    ++owner_.turnWaiters_;
    std::unique_lock lock(owner_.turnMutex_);
    if (!stop) {
      owner_.turnChanged_.wait(lock, decided);
    } else {
      while (!owner_.turnChanged_.wait_for(lock, kBetweenChecks, decided) && stop().ok()) {
      }
    }
    --owner_.turnWaiters_;
  }
  Communicator& owner_;
  uint64_t number_;
  bool mine_ = true;
};

// A turn that was taken for a call which may never be made: it is completed all the same.
class Communicator::TurnTicket {
 public:
  explicit TurnTicket(std::shared_ptr<Communicator> owner)
      : owner_(std::move(owner)), number_(owner_->takeTurn()) {}
  ~TurnTicket() {
    if (!used_) owner_->completeTurn(number_);
  }
  TurnTicket(const TurnTicket&) = delete;
  TurnTicket& operator=(const TurnTicket&) = delete;

  Communicator& owner() const { return *owner_; }
  // For the Turn, once.
  uint64_t use() {
    used_ = true;
    return number_;
  }

 private:
  std::shared_ptr<Communicator> owner_;
  uint64_t number_;
  bool used_ = false;
};

}  // namespace stretto::communicator
