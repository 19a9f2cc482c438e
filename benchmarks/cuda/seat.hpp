// Where the threads of a rank run while it is timed: the one that calls the library on a core of its own,
// every other one of the process (the library's, CUDA's, a profiler plugin's, the watchdog) on cores kept for
// those. Without such a list the scheduler decides, and two runs of one thing differ by microseconds an eager
// call. Used by rank.cpp and nccl_driver.cpp; all throw Failure.
#pragma once

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "failure.hpp"

namespace stretto::bench {

struct Seats {
  std::vector<int> cores;    // of the calling threads, by rank; empty: nobody is bound
  std::vector<int> helpers;  // of all other threads
};

inline cpu_set_t setOf(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  return set;
}

inline void bindThisThread(const std::vector<int>& cores) {
  const cpu_set_t set = setOf(cores);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return;
  throw Failure("cannot run on the cores of --cores and --helpers: " + std::string(strerror(errno)));
}

// The calling thread, and with it all threads that it will start, wherever this rank may be.
inline void bindLoosely(const Seats& seats, int rank) {
  if (seats.cores.empty()) return;
  std::vector<int> all = seats.helpers;
  all.push_back(seats.cores[static_cast<size_t>(rank)]);
  bindThisThread(all);
}

// For as long as it lives, the calling thread is alone on its core. Threads that are started meanwhile by it
// would share that core: so it is for times, not for what prepares them.
class Seat {
 public:
  Seat(const Seats& seats, int rank) : seats_(seats), rank_(rank) {
    if (seats_.cores.empty()) return;
    const std::lock_guard lock(mutex());
    callers().insert(gettid());
    sendOthersAway();
    bindThisThread({seats_.cores[static_cast<size_t>(rank)]});
  }
  ~Seat() {
    try {
      bindLoosely(seats_, rank_);
    } catch (const Failure&) {  // it could a moment ago; a slower rest of the run is no reason to end it
    }
  }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  // Ranks may be threads of one process.
  static std::set<pid_t>& callers() {
    static std::set<pid_t> all;
    return all;
  }
  // Threads that end meanwhile are none of our business.
  void sendOthersAway() const {
    DIR* const folder = opendir("/proc/self/task");
    if (folder == nullptr) throw Failure("cannot list this process's threads");
    const cpu_set_t set = setOf(seats_.helpers);
    while (const dirent* entry = readdir(folder)) {
      const pid_t thread = atoi(entry->d_name);
      if (thread > 0 && !callers().contains(thread)) sched_setaffinity(thread, sizeof set, &set);
    }
    closedir(folder);
  }

  const Seats& seats_;
  const int rank_;
};

}  // namespace stretto::bench
