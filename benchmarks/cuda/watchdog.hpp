// The end of every wait in a driver: a thread that lets nothing take longer than it was given. When something
// does, it says what, aborts the process's communicators, so that no kernel goes on spinning, and ends the
// process.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "library.hpp"

namespace stretto::bench {

constexpr int kExitHung = 3;

class Watchdog {
 public:
  explicit Watchdog(const Library& library) : library_(library) {
    std::thread([this] { watch(); }).detach();  // lives as long as the process, as this object does
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // `rank` now does `what`, and has to be done with it in so many seconds.
  void expect(int rank, const std::string& what, double seconds) {
    const std::lock_guard lock(mutex_);
    tasks_[rank] = {what, Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(seconds))};
  }
  void rest(int rank) {
    const std::lock_guard lock(mutex_);
    tasks_.erase(rank);
  }
  void adopt(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(comm);
  }
  void release(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    std::erase(comms_, comm);
  }

  // For a rank that failed while others may wait for it. Does not return.
  [[noreturn]] void endAll(const std::string& why) {
    fprintf(stderr, "nccl_driver: %s\n", why.c_str());
    fflush(stdout);
    abortAll();
    _exit(kExitHung);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    std::string what;
    Clock::time_point deadline;
  };

  void watch() {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::string late;
      {
        const std::lock_guard lock(mutex_);
        for (const auto& [rank, task] : tasks_) {
          if (Clock::now() > task.deadline)
            late += " rank " + std::to_string(rank) + " in " + task.what + ";";
        }
      }
      if (!late.empty()) endAll("gave up after the time allowed:" + late + " communicators are aborted");
    }
  }

  // Each on a thread of its own, because an abort may itself wait for a peer; five seconds for all of them.
  void abortAll() {
    const std::lock_guard lock(mutex_);
    static std::atomic<size_t> left;
    left = comms_.size();
    for (ncclComm_t comm : comms_) {
      std::thread([this, comm] {
        library_.commAbort(comm);
        --left;
      }).detach();
    }
    comms_.clear();
    for (int turn = 0; turn < 500 && left > 0; ++turn) usleep(10000);
  }

  const Library& library_;
  std::mutex mutex_;
  std::map<int, Task> tasks_;
  std::vector<ncclComm_t> comms_;
};

}  // namespace stretto::bench
