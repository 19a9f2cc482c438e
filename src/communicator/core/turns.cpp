#include "communicator/core/turns.hpp"

#include <thread>
#include <utility>

namespace stretto::communicator {

// The first thread becomes the only one. The second one ends that, once for all. Why no two threads get the
// same turn then:
//
//   1. The first thread stores that it takes a turn, passes the light fence, and looks whether it is still
//      the only one. The second thread stores that it comes, passes the heavy fence, and looks whether the
//      first one takes a turn. One of the two sees the other.
//   2. If the first thread sees the second, it comes here and takes its turn by a locked instruction, too.
//   3. If the second thread sees the first, it waits for the few instructions that the first one needs.
//   4. Only then it says that there are several threads. So every plain store comes before all locked ones.
uint64_t Turns::takeAmongSeveral() {
  if (taker_.load(std::memory_order_acquire) != kSeveral) {
    const std::lock_guard lock(takersMutex_);
    const uintptr_t taker = taker_.load(std::memory_order_relaxed);
    if (taker == kNobody) {
      taker_.store(platform::thisThread(), std::memory_order_relaxed);
    } else if (taker != kSeveral) {
      taker_.store(kSecondComes, std::memory_order_relaxed);
      fenceOperations();
      while (taking_.load(std::memory_order_acquire)) std::this_thread::yield();
      taker_.store(kSeveral, std::memory_order_release);
    }
  }
  const uint64_t turn = taken_.fetch_add(1, std::memory_order_acq_rel);
  fences_.frequent();
  return turn;
}

// One given up early waits in `abandoned_` until those before it are done.
void Turns::completeInOrder(uint64_t turn, std::function<void()> inItsPlace) {
  const std::lock_guard lock(mutex_);
  if (completed_.load() <= turn) {
    ++waiters_;  // before the look below: whoever completes the turn before this one comes here
    fenceOperations();
    abandoned_.emplace(turn, std::move(inItsPlace));
  }
  for (auto next = abandoned_.begin(); next != abandoned_.end() && next->first == completed_.load();
       next = abandoned_.erase(next)) {
    if (next->second) next->second();
    --waiters_;
    ++completed_;
  }
  changed_.notify_all();
}

bool Turns::await(uint64_t turn, const std::function<bool()>& givesUp) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
  ++waiters_;
  fenceOperations();
  std::unique_lock lock(mutex_);
  while (!isDue(turn) && !givesUp()) changed_.wait_for(lock, kBetweenLooks);
  --waiters_;
  return isDue(turn);
}

void Turns::wake() {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool Turns::awaitQuiet(double seconds) {
  ++waiters_;
  fenceOperations();
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return quiet(); });
  --waiters_;
  return done;
}

}  // namespace stretto::communicator
