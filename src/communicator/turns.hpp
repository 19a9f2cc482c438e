// The order of a communicator's operations. Each call takes a turn, runs when all turns before it are
// completed, and completes its own. The common case has no locked instruction and no fence: the caller's
// thread takes the next turn, finds it due, and completes it with nobody waiting.
//
// Two pairs of threads each store a word and then load the other's: who takes a turn and who ends the
// communicator (`taken_`, the communicator's state), and who completes a turn and who waits for that
// (`completed_`, `waiters_`). In both the second one comes rarely, so the fence between store and load is
// asymmetric (platform/fence.hpp): operations pass the light side, and fenceOperations() is the heavy one.
//
// Threads: take() is for the thread that calls operations, one at a time (nccl.h); the rest for any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "platform/fence.hpp"

namespace stretto::communicator {

class Turns {
 public:
  uint64_t take() {
    const uint64_t turn = taken_.load(std::memory_order_relaxed);
    taken_.store(turn + 1, std::memory_order_release);
    fence();
    return turn;
  }
  bool isDue(uint64_t turn) const { return completed_.load(std::memory_order_acquire) == turn; }
  // Each turn once, due or given up before. True: somebody wanted to hear of it.
  bool complete(uint64_t turn) {
    if (isDue(turn)) [[likely]] {
      completed_.store(turn + 1, std::memory_order_release);
      fence();
      if (waiters_.load(std::memory_order_relaxed) == 0) [[likely]] {
        return false;
      }
    }
    completeInOrder(turn, {});
    return true;
  }
  // The same for a turn that may not be due, instead of complete(). `inItsPlace` is done when it is, by
  // whoever completes the turn before it, under a lock: it must be quick.
  void completeInOrder(uint64_t turn, std::function<void()> inItsPlace);
  // Every turn that was taken is completed.
  bool quiet() const {
    return taken_.load(std::memory_order_acquire) == completed_.load(std::memory_order_acquire);
  }

  // Until the turn is due or `givesUp`, which is asked whenever a turn was completed and every 20 ms; false
  // if it is not due.
  bool await(uint64_t turn, const std::function<bool()>& givesUp);
  // What await() gives up for may have come.
  void wake();
  // False after `seconds`.
  bool awaitQuiet(double seconds);
  // From here on complete() is always true.
  void listen() { ++waiters_; }
  // All threads that run operations have seen what this thread stored before, or this thread sees what they
  // took and completed.
  void fenceOperations() const;

 private:
  void fence() const {
    if (light_) [[likely]] {
      platform::lightFence();
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  const bool light_ = platform::hasProcessFence();
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<int> waiters_{0};  // threads, and turns that were given up before they were due
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::function<void()>> abandoned_;  // turns given up before they were due, by mutex_
};

}  // namespace stretto::communicator
