// The library's own threads, beside those of the program that uses it. The program's signals are blocked on
// them (signals.hpp). A forked child has a copy of these objects but not the threads; it neither joins nor
// detaches them.
#pragma once

#include <cstdint>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "platform/fork.hpp"
#include "platform/signals.hpp"

namespace stretto::platform {

// What keeps a system from having one more thread.
inline constexpr char kNoThread[] = "ulimit -u or the cgroup's pids.max is reached, or memory is full";

// One that is waited for. Functions may be called by one thread at a time.
class OwnThread {
 public:
  OwnThread() = default;
  // As start(), and throws std::system_error where the system has no thread for it.
  template <typename Work>
  requires(!std::is_same_v<Work, OwnThread>) explicit OwnThread(Work work) { run(std::move(work)); }
  ~OwnThread() { join(); }
  OwnThread(OwnThread&&) noexcept = default;
  OwnThread& operator=(OwnThread&&) = delete;

  // Runs `work` on a new thread, after the one before if there was one. False, and `work` has not run, if
  // the system has no thread for it.
  template <typename Work>
  [[nodiscard]] bool start(Work work) {
    try {
      run(std::move(work));
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  // False in a forked child of the process that started it.
  bool isHere() const { return thread_.joinable() && generation_ == forkGeneration(); }
  // Waits until its work has ended.
  void join() {
    if (isHere()) {
      thread_.join();
    } else if (thread_.joinable()) {
      // A thread that this child has started may have the same handle: neither joined nor detached.
      static_cast<void>(new std::thread(std::move(thread_)));
    }
  }

 private:
  template <typename Work>
  void run(Work work) {
    join();
    const SignalsBlocked blocked;
    generation_ = forkGeneration();
    thread_ = std::thread(std::move(work));
  }

  uint32_t generation_ = 0;
  std::thread thread_;
};

// One that nobody waits for: `work` owns what it uses, and ends by itself. False, and `work` has not run, if
// the system has no thread for it.
template <typename Work>
[[nodiscard]] bool startAlone(Work work) {
  const SignalsBlocked blocked;
  try {
    std::thread(std::move(work)).detach();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace stretto::platform
