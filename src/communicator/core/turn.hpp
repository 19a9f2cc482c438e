// Operations, windows and splits of one communicator run one after another, in the order of the calls, on
// whatever thread: each call takes a turn. For communicator/ only.
#pragma once

#include <functional>
#include <utility>

#include "communicator/core/communicator.hpp"

namespace stretto::communicator {

// A turn, waited for when made and completed when destroyed. One that has not come when the communicator is
// aborted, or when `stop` is not ok, is given up: not mine().
class Communicator::Turn {
 public:
  Turn(Communicator& owner, uint64_t number) : owner_(owner), number_(number) {
    if (!owner_.turns_.isDue(number_)) [[unlikely]]
      waitForOthers({});
  }
  Turn(Communicator& owner, uint64_t number, const bootstrap::StopCheck& stop)
      : owner_(owner), number_(number) {
    if (!owner_.turns_.isDue(number_)) waitForOthers(stop);
  }
  ~Turn() {
    if (!isLeft_) owner_.completeTurn(number_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool mine() const { return mine_; }
  // Mine, and not after an abort on another thread has let go of what the communicator holds.
  bool holds() const { return mine_ && !owner_.releaseDue_.load(); }
  // Of one that was given up: `inItsPlace` is done when it comes, under a lock, so it must be quick.
  void leave(std::function<void()> inItsPlace) {
    isLeft_ = true;
    owner_.turns_.completeInOrder(number_, std::move(inItsPlace));
    owner_.releaseIfDue();
  }

 private:
  // Bounded: every operation before this one ends by its own deadline.
  void waitForOthers(const bootstrap::StopCheck& stop) {
    mine_ = owner_.turns_.await(number_, [&] { return owner_.abort_.load() != 0 || (stop && !stop().ok()); });
  }

  Communicator& owner_;
  uint64_t number_;
  bool mine_ = true;
  bool isLeft_ = false;
};

// For calls that look at what the communicator holds and wait for nobody: a turn that is not waited for. What
// the communicator holds stays until this ends, unless an abort on another thread has let go of it before, or
// this is a child of fork(): !holds().
class Communicator::Hold {
 public:
  explicit Hold(Communicator& owner)
      : owner_(owner),
        mayTouch_(owner.forkGeneration_ == platform::forkGeneration()),
        number_(mayTouch_ ? owner.takeTurn() : 0) {}
  ~Hold() {
    if (mayTouch_) owner_.completeTurn(number_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  bool holds() const { return mayTouch_ && !owner_.releaseDue_.load(); }

 private:
  Communicator& owner_;
  bool mayTouch_;
  uint64_t number_;
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
