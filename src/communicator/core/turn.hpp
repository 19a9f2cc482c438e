// A call's turn among the operations, windows and splits of one communicator (queue.hpp). For communicator/
// only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "communicator/core/queue.hpp"

namespace stretto::communicator {

// A turn, waited for when made and completed when destroyed. One that has not come when the communicator is
// aborted, or when `stop` is not ok, is given up: not mine().
class Turn {
 public:
  Turn(Queue& queue, uint64_t number) : queue_(queue), number_(number) {
    if (!queue_.isDue(number_)) [[unlikely]]
      why_ = queue_.await(number_, {});
  }
  Turn(Queue& queue, uint64_t number, const bootstrap::StopCheck& stop) : queue_(queue), number_(number) {
    if (!queue_.isDue(number_)) why_ = queue_.await(number_, stop);
  }
  ~Turn() {
    if (!isLeft_) queue_.complete(number_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool mine() const { return why_.ok(); }
  // Why it was given up; kOk if it is mine. The words were this thread's last error when this was made.
  Status why() const { return why_; }
  // Mine, and not after an abort on another thread has let go of what the communicator holds.
  bool holds() const { return mine() && !queue_.isClosed(); }
  // Of one that was given up: `inItsPlace` is done when it comes, under a lock, so it must be quick.
  void leave(std::function<void()> inItsPlace) {
    isLeft_ = true;
    queue_.completeInOrder(number_, std::move(inItsPlace));
  }

 private:
  Queue& queue_;
  uint64_t number_;
  Status why_;
  bool isLeft_ = false;
};

// For calls that look at what the communicator holds and wait for nobody: a turn that is not waited for. What
// the communicator holds stays until this ends, unless an abort on another thread has let go of it before, or
// this is a child of fork(): !holds().
class Hold {
 public:
  explicit Hold(Queue& queue)
      : queue_(queue), mayTouch_(queue.self().isOfThisProcess()), number_(mayTouch_ ? queue.take() : 0) {}
  ~Hold() {
    if (mayTouch_) queue_.complete(number_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  bool holds() const { return mayTouch_ && !queue_.isClosed(); }
  // Every turn before this one is over.
  bool isDue() const { return mayTouch_ && queue_.isDue(number_); }

 private:
  Queue& queue_;
  bool mayTouch_;
  uint64_t number_;
};

// A turn that was taken for a call which may never be made: it is completed all the same. Keeps the queue.
class TurnTicket {
 public:
  explicit TurnTicket(std::shared_ptr<Queue> queue) : queue_(std::move(queue)), number_(queue_->take()) {}
  ~TurnTicket() {
    if (!used_) queue_->complete(number_);
  }
  TurnTicket(const TurnTicket&) = delete;
  TurnTicket& operator=(const TurnTicket&) = delete;

  // For the Turn, once.
  uint64_t use() {
    used_ = true;
    return number_;
  }

 private:
  std::shared_ptr<Queue> queue_;
  uint64_t number_;
  bool used_ = false;
};

}  // namespace stretto::communicator
