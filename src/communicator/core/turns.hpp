// The order of a communicator's operations. Each call takes a turn, runs when all turns before it are
// completed, and completes its own. The common case has no locked instruction and no fence: the caller's
// thread takes the next turn, finds it due, and completes it with nobody waiting.
//
// Two pairs of threads each store a word and then load the other's: who takes a turn and who ends the
// communicator (`taken_`, the communicator's state), and who completes a turn and who waits for that
// (`completed_`, `waiters_`). In both the second one comes rarely, so the fence between store and load is
// asymmetric (platform/fence.hpp): operations pass the light side, and fenceOperations() is the heavy one.
//
// Threads: any. Callers take one turn at a time (nccl.h), and so far from one thread as a rule: that thread
// takes turns by plain stores. From the first turn of a second thread on, all threads take them by locked
// instructions, because two that call at the same moment in spite of nccl.h must not get the same turn: they
// would run in the same memory.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "platform/fence.hpp"
#include "platform/this_thread.hpp"

namespace stretto::communicator {

class Turns {
 public:
  uint64_t take() {
    const uintptr_t me = platform::thisThread();
    if (taker_.load(std::memory_order_relaxed) == me) [[likely]] {
      taking_.store(true, std::memory_order_relaxed);
      fences_.frequent();
      if (taker_.load(std::memory_order_relaxed) == me) [[likely]] {
        const uint64_t turn = taken_.load(std::memory_order_relaxed);
        taken_.store(turn + 1, std::memory_order_release);
        taking_.store(false, std::memory_order_release);
        fences_.frequent();
        return turn;
      }
      taking_.store(false, std::memory_order_release);
    }
    return takeAmongSeveral();
  }
  bool isDue(uint64_t turn) const { return completed_.load(std::memory_order_acquire) == turn; }
  // Each turn once, due or given up before. True: somebody wanted to hear of it.
  bool complete(uint64_t turn) {
    if (isDue(turn)) [[likely]] {
      completed_.store(turn + 1, std::memory_order_release);
      fences_.frequent();
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
  void fenceOperations() const { fences_.rare(); }

 private:
  uint64_t takeAmongSeveral();

  static constexpr uintptr_t kNobody = 0, kSecondComes = 1, kSeveral = 2;  // no thread's names
  const platform::FencePair fences_{};
  std::atomic<uintptr_t> taker_{kNobody};  // the only thread that has taken turns, or why there is none
  std::atomic<bool> taking_{false};        // that thread takes one now
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<int> waiters_{0};  // threads, and turns that were given up before they were due
  // Behind what every operation uses, which lies close together.
  std::mutex takersMutex_;  // held while `taker_` changes
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::function<void()>> abandoned_;  // turns given up before they were due, by mutex_
};

}  // namespace stretto::communicator
