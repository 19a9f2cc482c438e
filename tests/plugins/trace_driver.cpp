// Makes a recording without NCCL: loads a profiler plugin and calls it as NCCL would for all-reduces between
// ranks that are threads of this process, each with a progress thread of its own.
//
//   trace_driver PLUGIN RANKS OPERATIONS ABI [FIRST_RANK OF_RANKS [LATE_RANK LATE_MICROSECONDS]]
//
// FIRST_RANK and OF_RANKS make this process one of several of the same communicator; LATE_RANK enters each
// operation that much after the others. Prints one line: the mask that the plugin asked for and the starts
// that were made.
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "canned_calls.hpp"

namespace stretto::testing {
namespace {

struct Job {
  const char* plugin = nullptr;
  int ranks = 0;
  int operations = 0;
  int abi = 0;
  int first = 0;
  int of = 0;
  int late = -1;
  int lateMicroseconds = 0;
};

void spin(int microseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  while (std::chrono::steady_clock::now() < end) platform::relax();
}

// What the application thread hands to the progress thread.
class Posted {
 public:
  void push(void* coll) {
    std::lock_guard lock(mutex_);
    queue_.push(coll);
    more_.notify_one();
  }
  void* pop() {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [this] { return !queue_.empty(); });
    void* coll = queue_.front();
    queue_.pop();
    return coll;
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::queue<void*> queue_;
};

template <int Abi>
class Run {
 public:
  Run(const Job& job, const TableOf<Abi>& table) : job_(job), table_(table), meeting_(job.ranks) {}

  uint64_t all() {
    std::vector<std::thread> threads;
    for (int i = 0; i < job_.ranks; ++i) threads.emplace_back([this, i] { rank(job_.first + i); });
    for (std::thread& thread : threads) thread.join();
    printf("mask %d starts %llu\n", mask_.load(), static_cast<unsigned long long>(starts_.load()));
    return starts_;
  }

 private:
  void rank(int number) {
    Rank<Abi> me(table_, {"canned", 0xc0ffee, 1, job_.of, number});
    Posted posted;
    std::thread progress([&] {
      pthread_setname_np(pthread_self(), ("NCCL Progress " + std::to_string(number % 100)).c_str());
      for (int i = 0; i < job_.operations; ++i) me.progress(posted.pop(), 2, 2, [] { spin(2); });
    });
    for (int i = 0; i < job_.operations; ++i) {
      meeting_.arrive_and_wait();
      if (number == job_.late) spin(job_.lateMicroseconds);
      posted.push(me.submit(static_cast<uint64_t>(i), 1024, [] { spin(2); }));
    }
    progress.join();
    mask_.store(me.mask());
    starts_.fetch_add(me.starts());
  }

  Job job_;
  const TableOf<Abi>& table_;
  std::barrier<> meeting_;
  std::atomic<int> mask_{0};
  std::atomic<uint64_t> starts_{0};
};

template <int Abi>
int drive(const Job& job, void* library) {
  const auto* table = loadTable<Abi>(library);
  if (table == nullptr) {
    fprintf(stderr, "trace_driver: %s has no ncclProfiler_v%d\n", job.plugin, Abi);
    return 1;
  }
  Run<Abi>(job, *table).all();
  return 0;
}

int dispatch(const Job& job, void* library) {
  switch (job.abi) {
    case 1:
      return drive<1>(job, library);
    case 2:
      return drive<2>(job, library);
    case 3:
      return drive<3>(job, library);
    case 4:
      return drive<4>(job, library);
    case 5:
      return drive<5>(job, library);
    case 6:
      return drive<6>(job, library);
    case 7:
      return drive<7>(job, library);
    default:
      fprintf(stderr, "trace_driver: ABI %d is not one of 1 to 7\n", job.abi);
      return 2;
  }
}

int parse(int count, char** arguments, Job& job) {
  if (count != 5 && count != 7 && count != 9) {
    fprintf(
        stderr,
        "usage: trace_driver PLUGIN RANKS OPERATIONS ABI [FIRST_RANK OF_RANKS [LATE_RANK MICROSECONDS]]\n");
    return 2;
  }
  job.plugin = arguments[1];
  job.ranks = atoi(arguments[2]);
  job.operations = atoi(arguments[3]);
  job.abi = atoi(arguments[4]);
  job.of = job.ranks;
  if (count >= 7) {
    job.first = atoi(arguments[5]);
    job.of = atoi(arguments[6]);
  }
  if (count == 9) {
    job.late = atoi(arguments[7]);
    job.lateMicroseconds = atoi(arguments[8]);
  }
  const bool good =
      job.ranks >= 1 && job.ranks <= 64 && job.operations >= 0 && job.first >= 0 && job.of >= job.ranks;
  if (!good) fprintf(stderr, "trace_driver: 1 to 64 RANKS, OF_RANKS no fewer, nothing negative\n");
  return good ? 0 : 2;
}

int driverMain(int count, char** arguments) {
  Job job;
  if (const int wrong = parse(count, arguments, job)) return wrong;
  void* library = dlopen(job.plugin, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "trace_driver: %s\n", dlerror());
    return 1;
  }
  const int result = dispatch(job, library);
  dlclose(library);
  return result;
}

}  // namespace
}  // namespace stretto::testing

int main(int count, char** arguments) {
  return stretto::testing::driverMain(count, arguments);
}
