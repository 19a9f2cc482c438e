// The all-reduces of inference engines between CPU ranks over one shared memory: baselines of `stretto lab`,
// which no user of the library loads. They keep the structure of vLLM's custom all-reduce: every rank reads
// its peers' memory (pull), and barriers of flags say when it may. Included by kinds_driver.cpp and
// kinds_library.cpp.
//
// One stage: each rank copies its input into its staging buffer, meets the others at the start barrier, and
// adds all staging buffers into its output. Two stages: each rank adds one shard of all staging buffers,
// meets the others again, and copies everybody's shard.
//
// The end barrier keeps a rank from overwriting its staging buffer for the next call while a peer still reads
// it. Why it may be left out:
// - One stage and two staging buffers in turn: to write buffer A again a rank must have passed the start
// barrier of
//   the call between, which used B; each peer arrived there after its reads of A.
// - Two stages and one staging buffer: peers' reads of the staging buffer end before the barrier between the
// stages,
//   and their reads of shards before the next call's start barrier, after which shards are written again.
// - One stage and one buffer: it may not. `1stage-unsafe` does it nevertheless, to show that results are
// checked.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "../chain.hpp"

namespace stretto::bench {

struct Kind {
  const char* name;
  int stages;
  int buffers;  // staging buffers of each rank, used in turn
  bool endBarrier;
};
// "nosync" in a name: without the end barrier.
inline constexpr Kind kKinds[] = {
    {"1stage", 1, 1, true},         {"1stage-2buf", 1, 2, true}, {"1stage-nosync", 1, 2, false},
    {"1stage-unsafe", 1, 1, false}, {"2stage", 2, 1, true},      {"2stage-nosync", 2, 1, false},
};

inline const Kind* findKind(const std::string& name) {
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}

// The memory that all ranks of one job map. Rank 0 makes it; its name is gone as soon as every rank has it.
class SharedMemory {
 public:
  static constexpr int kMostRanks = 64;
  static constexpr size_t kLine = 64;

  // `name`: the same on all ranks, and of no other job.
  SharedMemory(const std::string& name, int rank, int ranks, size_t bytes) : size_(sizeof(Header) + bytes) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kSecondsToMeet);
    const int file = rank == 0 ? create(name) : find(name, deadline);
    if (file < 0) return;
    void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    header_ = static_cast<Header*>(mapped);
    header_->present.fetch_add(1);
    while (header_->present.load() < ranks && std::chrono::steady_clock::now() < deadline) usleep(200);
    isComplete_ = header_->present.load() == ranks;
    if (rank == 0) shm_unlink(name.c_str());
  }
  ~SharedMemory() {
    if (header_ != nullptr) munmap(header_, size_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  bool isComplete() const { return isComplete_; }
  std::atomic<uint64_t>& flag(int rank) { return header_->flags[rank].value; }
  std::byte* data() { return reinterpret_cast<std::byte*>(header_ + 1); }

 private:
  static constexpr int kSecondsToMeet = 60;
  struct alignas(kLine) Flag {
    std::atomic<uint64_t> value;
  };
  struct Header {
    alignas(kLine) std::atomic<int> present;
    Flag flags[kMostRanks];
  };

  int create(const std::string& name) const {
    const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(size_)) == 0) return file;
    close(file);
    shm_unlink(name.c_str());
    return -1;
  }
  int find(const std::string& name, std::chrono::steady_clock::time_point deadline) const {
    for (; std::chrono::steady_clock::now() < deadline; usleep(200)) {
      const int file = shm_open(name.c_str(), O_RDWR, 0600);
      if (file < 0) continue;
      struct stat facts {};
      if (fstat(file, &facts) == 0 && static_cast<size_t>(facts.st_size) == size_) return file;
      close(file);
    }
    return -1;
  }

  size_t size_;
  Header* header_ = nullptr;
  bool isComplete_ = false;
};

// One rank's end of an all-reduce of float32 sums. All ranks make the same calls in the same order.
class KindOfAllReduce {
 public:
  KindOfAllReduce(const Kind& kind, const std::string& name, int rank, int ranks, size_t maxBytes)
      : kind_(kind),
        rank_(rank),
        ranks_(ranks),
        stride_((maxBytes + SharedMemory::kLine - 1) / SharedMemory::kLine * SharedMemory::kLine),
        memory_(name, rank, ranks, static_cast<size_t>(ranks) * kBuffers * stride_) {}

  bool isReady() const { return memory_.isComplete(); }

  // False when a peer has not come for a minute. `receive` may be `send`.
  bool allReduce(const void* send, void* receive, size_t count) {
    const int buffer = kind_.buffers == 2 ? static_cast<int>(calls_++ % 2) : 0;
    memcpy(at(rank_, buffer), send, count * sizeof(float));
    if (!meet()) return false;
    keepBusy(std::exchange(hold_, 0));
    auto* out = static_cast<float*>(receive);
    if (kind_.stages == 1) {
      add(buffer, 0, count, out);
    } else if (!addShards(buffer, count, out)) {
      return false;
    }
    return !kind_.endBarrier || meet();
  }

  // Every rank's flag is a count of the barriers that it has reached; it only grows.
  bool meet() {
    const uint64_t mine = ++barriers_;
    memory_.flag(rank_).store(mine, std::memory_order_release);
    for (int peer = 0; peer < ranks_; ++peer) {
      if (!waitFor(peer, mine)) return false;
    }
    return true;
  }

  // In the next call this rank is late between the start barrier and its reads: where the end barrier makes
  // the others wait for it, and its absence does not.
  void holdInside(size_t nanoseconds) { hold_ = nanoseconds; }

 private:
  static constexpr int kBuffers = 3;  // two for staging, one for the shards
  static constexpr int kShards = 2;
  static constexpr size_t kStep = 2048;  // elements that stay in the nearest cache while ranks are added
  static constexpr int kSpins = 4000;
  static constexpr int kLooks = 1 << 16;
  static constexpr std::chrono::seconds kPatience{60};

  float* at(int rank, int buffer) {
    return reinterpret_cast<float*>(memory_.data() + static_cast<size_t>(rank * kBuffers + buffer) * stride_);
  }

  bool waitFor(int peer, uint64_t count) {
    const auto began = std::chrono::steady_clock::now();
    for (int looks = 0; memory_.flag(peer).load(std::memory_order_acquire) < count; ++looks) {
      if (looks < kSpins) continue;
      sched_yield();  // more ranks than cores must get on
      if (looks % kLooks == 0 && std::chrono::steady_clock::now() - began > kPatience) return false;
    }
    return true;
  }

  // Adds elements [first, first + count) of all ranks in rank order.
  void add(int buffer, size_t first, size_t count, float* out) {
    for (size_t done = 0; done < count; done += kStep) {
      const size_t step = std::min(kStep, count - done);
      float* const to = out + done;
      memcpy(to, at(0, buffer) + first + done, step * sizeof(float));
      for (int rank = 1; rank < ranks_; ++rank) {
        const float* const from = at(rank, buffer) + first + done;
        for (size_t i = 0; i < step; ++i) to[i] += from[i];
      }
    }
  }

  bool addShards(int buffer, size_t count, float* out) {
    const auto ranks = static_cast<size_t>(ranks_);
    const auto begin = [&](int rank) { return count * static_cast<size_t>(rank) / ranks; };
    add(buffer, begin(rank_), begin(rank_ + 1) - begin(rank_), at(rank_, kShards));
    if (!meet()) return false;
    for (int rank = 0; rank < ranks_; ++rank) {
      memcpy(out + begin(rank), at(rank, kShards), (begin(rank + 1) - begin(rank)) * sizeof(float));
    }
    return true;
  }

  const Kind& kind_;
  const int rank_;
  const int ranks_;
  const size_t stride_;
  SharedMemory memory_;
  uint64_t barriers_ = 0;
  uint64_t calls_ = 0;
  size_t hold_ = 0;
};

}  // namespace stretto::bench
