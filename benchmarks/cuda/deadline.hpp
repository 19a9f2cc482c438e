// The end of every wait in a driver whose kernels may be other people's: a thread that ends the process when
// something takes longer than it was given, and says what that was.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace stretto::bench {

class Deadline {
 public:
  explicit Deadline(const char* program) : program_(program) {
    std::thread([this] { watch(); }).detach();  // lives as long as the process, as this object does
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  // `what` now begins, and something else must within so many seconds.
  void expect(const std::string& what, int seconds) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    seconds_ = seconds;
    end_ = Clock::now() + std::chrono::seconds(seconds);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::lock_guard lock(mutex_);
      if (Clock::now() < end_) continue;
      std::fprintf(stderr, "%s: %s took more than %d s: given up\n", program_, what_.c_str(), seconds_);
      std::fflush(nullptr);
      std::_Exit(3);
    }
  }

  const char* const program_;
  std::mutex mutex_;
  std::string what_ = "the start";
  int seconds_ = 0;
  Clock::time_point end_ = Clock::time_point::max();
};

}  // namespace stretto::bench
