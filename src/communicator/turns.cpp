#include "communicator/turns.hpp"

#include <thread>
#include <utility>

namespace stretto::communicator {

void Turns::fenceOperations() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Refused, though it had been promised, by a sandbox that came later: a store is seen long before this
  // ends.
  constexpr auto kLongForAStore = std::chrono::milliseconds(1);
  if (light_ && !platform::processFence()) std::this_thread::sleep_for(kLongForAStore);
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
