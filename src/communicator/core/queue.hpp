// The order of one rank's operations, and the thread that runs those which their caller does not wait for.
//
// Invariant: operations, windows and splits run one after another, in the order of the calls, on whatever
// thread: each call takes a turn (turn.hpp). What they use is let go of when the queue has been closed and no
// turn is under way, by whoever finds it so.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "bootstrap/membership.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/turns.hpp"
#include "executors/host/stream.hpp"

namespace stretto::communicator {

class Queue {
 public:
  // `watch` is told what the worker does. `drained`: once the queue is closed, called each time that the last
  // turn has ended.
  Queue(const Identity& self, const Health& health, executors::host::StreamWatch& watch,
        std::function<void()> drained)
      : self_(self), health_(health), watch_(watch), drained_(std::move(drained)) {}

  const Identity& self() const { return self_; }

  // A turn, to be completed exactly once, on any thread.
  uint64_t take() { return turns_.take(); }
  bool isDue(uint64_t turn) const { return turns_.isDue(turn); }
  void complete(uint64_t turn) {
    if (turns_.complete(turn)) [[unlikely]]
      wasHeard();
  }
  // The same for a turn that is not due: `inItsPlace` is done when it comes, under a lock.
  void completeInOrder(uint64_t turn, std::function<void()> inItsPlace);
  // kOk once the turn has come. Else why it was given up, with the words in lastError(): this rank was
  // aborted, or `stop` said so. Bounded: every operation before it ends by its own deadline.
  Status await(uint64_t turn, const bootstrap::StopCheck& stop);
  // Looks again at what turns are given up for.
  void wake() { turns_.wake(); }
  bool quiet() const { return turns_.quiet(); }
  // False after `seconds`.
  bool awaitQuiet(double seconds) { return turns_.awaitQuiet(seconds); }

  // Whether the user may not call any more: the communicator is being finalised.
  bool takesNoCalls() const { return takesNoCalls_.load(std::memory_order_acquire); }
  void takeNoCalls(bool none) { takesNoCalls_.store(none); }

  // Nobody will use the communicator any more. True if nothing runs: else whoever ends the last turn calls
  // `drained`.
  bool close();
  bool isClosed() const { return closed_.load(); }

  // The worker, made at first need. Whoever gives it work keeps it meanwhile: an abort on another thread may
  // let go of the communicator in any moment.
  std::shared_ptr<executors::host::Stream> worker();
  // The worker's thread must not see the last reference die, so whoever lets go of a communicator ends it
  // first.
  void endWorker();

 private:
  void wasHeard();

  const Identity& self_;
  const Health& health_;
  executors::host::StreamWatch& watch_;
  const std::function<void()> drained_;
  Turns turns_;
  std::atomic<bool> takesNoCalls_{false};
  std::atomic<bool> closed_{false};
  std::mutex workerMutex_;
  std::shared_ptr<executors::host::Stream> worker_;
};

}  // namespace stretto::communicator
