// What the ranks of one job share, whether they are threads, forked processes or processes that were started
// one by one: a barrier, the communicator's unique id, and a table into which each rank writes its times. It
// lies in one piece of shared memory; zeroed memory is its first state. Used by the drivers of this folder.
#pragma once

#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "failure.hpp"

namespace stretto::bench {

constexpr int kMostRanks = 16;
constexpr size_t kMostTimes = 2048;
constexpr size_t kMostWords = 500;  // of the reason why a rank gave up; what is longer is cut

struct CrewMemory {
  std::atomic<uint64_t> arrivals;
  std::atomic<uint32_t> idIsThere;
  std::atomic<uint32_t> broken;  // 0, then 1 while the first rank that gives up writes `why`, then 2
  char why[kMostWords + 1];
  ncclUniqueId id;
  double times[kMostRanks][kMostTimes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "it is shared between processes");

// Of threads, or of processes that will be forked: before the first of them.
inline CrewMemory* crewOfOneParent() {
  void* at = mmap(nullptr, sizeof(CrewMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw Failure("no shared memory for the ranks");
  return static_cast<CrewMemory*>(at);
}

// Of processes that know a folder in common. Whoever comes first makes the file; growing it again changes
// nothing.
inline CrewMemory* crewOfFolder(const std::string& folder) {
  const int file = open((folder + "/crew").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(CrewMemory)) != 0) throw Failure("cannot make " + folder + "/crew");
  void* at = mmap(nullptr, sizeof(CrewMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) throw Failure("cannot map " + folder + "/crew");
  return static_cast<CrewMemory*>(at);
}

// One rank's place in the crew.
class Crew {
 public:
  Crew(CrewMemory* memory, int rank, int ranks, double seconds)
      : memory_(memory), rank_(rank), ranks_(ranks), seconds_(seconds) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Returns when every rank has come here as often as this one. All leave within a microsecond or so of each
  // other where each has a core: the wait spins first, and sleeps only when somebody is late.
  void meet() {
    const uint64_t goal = ++meetings_ * static_cast<uint64_t>(ranks_);
    if (memory_->arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 >= goal) return;
    waitUntil([&] { return memory_->arrivals.load(std::memory_order_acquire) >= goal; },
              "to meet the other ranks");
  }

  void giveId(const ncclUniqueId& id) {
    memory_->id = id;
    memory_->idIsThere.store(1, std::memory_order_release);
  }
  ncclUniqueId takeId() {
    waitUntil([&] { return memory_->idIsThere.load(std::memory_order_acquire) != 0; },
              "for rank 0's unique id");
    return memory_->id;
  }

  // Times of all ranks in, for each of them that of the slowest rank out. Every rank must call it.
  std::vector<double> slowest(const std::vector<double>& mine) {
    const size_t count = std::min(mine.size(), kMostTimes);
    std::copy_n(mine.begin(), count, memory_->times[rank_]);
    meet();
    std::vector<double> out(count);
    for (size_t i = 0; i < count; ++i) {
      for (int rank = 0; rank < ranks_; ++rank) out[i] = std::max(out[i], memory_->times[rank][i]);
    }
    meet();
    return out;
  }
  double sum(double mine) {
    memory_->times[rank_][0] = mine;
    meet();
    double out = 0;
    for (int rank = 0; rank < ranks_; ++rank) out += memory_->times[rank][0];
    meet();
    return out;
  }

  // Tells ranks that wait here not to. The first reason counts: all ranks report that one, so it does not
  // matter which of them is heard.
  void giveUp(const std::string& why) {
    uint32_t none = 0;
    if (!memory_->broken.compare_exchange_strong(none, 1, std::memory_order_relaxed)) return;
    const std::string words = "rank " + std::to_string(rank_) + ": " + why;
    memory_->why[words.copy(memory_->why, kMostWords)] = 0;
    memory_->broken.store(2, std::memory_order_release);
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class Test>
  void waitUntil(Test isDone, const char* purpose) const {
    const auto began = Clock::now();
    while (!isDone()) {
      if (memory_->broken.load(std::memory_order_acquire) == 2) {
        throw Failure(std::string("another rank gave up: ") + memory_->why);
      }
      const double waited = std::chrono::duration<double>(Clock::now() - began).count();
      if (waited > seconds_) throw Failure("waited " + std::to_string(seconds_) + " s " + purpose);
      if (waited > 0.01) {
        usleep(200);
      } else if (waited > 0.0002) {
        sched_yield();
      }
    }
  }

  CrewMemory* memory_;
  int rank_;
  int ranks_;
  double seconds_;
  uint64_t meetings_ = 0;
};

}  // namespace stretto::bench
