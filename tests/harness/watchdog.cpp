#include "harness/watchdog.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace stretto::testing {

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::thread thread;
};

Watchdog::Watchdog(const char* what, double seconds) : state_(new State) {
  state_->thread = std::thread([state = state_, text = std::string(what), seconds] {
    std::unique_lock lock(state->mutex);
    const auto limit = std::chrono::duration<double>(seconds);
    if (!state->changed.wait_for(lock, limit, [&] { return state->done; })) {
      fprintf(stderr, "watchdog: %s did not finish in %.0f s\n", text.c_str(), seconds);
      abort();
    }
  });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(state_->mutex);
    state_->done = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
  delete state_;
}

}  // namespace stretto::testing
