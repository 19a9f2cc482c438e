// Inputs and verdicts on the GPU, with the values of ../pattern.hpp: an element depends on its rank, its
// index and the round of the check, so that a result left over from the round before counts as wrong. Also
// the gate, which lets all ranks' streams go at the same moment. Used by the drivers of this folder.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "../pattern.hpp"

namespace stretto::bench {

// One period of every rank's input and of their reduction, in device memory.
class Judge {
 public:
  explicit Judge(cudaStream_t stream);
  ~Judge();
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  // Before anything else of a request; waits for the copies, which a request of the same type and operator
  // spares.
  void prepare(const Request& request);
  // Another round: everything is filled and judged with other values. All ranks count rounds alike.
  void turn() { ++round_; }

  // `place`: of an operation in its group; each has values of its own.
  void fillInput(void* buffer, size_t count, size_t place);
  // Both enqueue: that nothing is wrong so far, and what is in one more result. wrong() is valid once the
  // stream is idle.
  void begin();
  void judge(const void* result, size_t place);
  uint64_t wrong() const { return *count_; }

 private:
  size_t shift(size_t place) const { return ((round_ + place * 7) * 389) % kPeriod; }
  const std::byte* tableOf(int source) const;

  cudaStream_t stream_;
  Request request_;
  size_t round_ = 0;
  std::byte* tables_ = nullptr;  // device; one period a rank, then the reduction's
  uint64_t* wrong_ = nullptr;    // device
  uint64_t* count_ = nullptr;    // pinned host memory: the same, once the stream is idle
  unsigned allowedSteps_ = 0;  // by how many representable values a result may be off: an average's rounding
};

// A kernel that waits for the host, at most two seconds: what follows it in the stream is enqueued when all
// start.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void close(cudaStream_t stream);
  void open() { __atomic_store_n(&words_[0], turn_, __ATOMIC_RELEASE); }
  // Valid once the stream is idle: whether somebody opened it in time.
  bool wasOpened() const { return __atomic_load_n(&words_[1], __ATOMIC_ACQUIRE) == 0; }

 private:
  uint32_t* words_ = nullptr;  // pinned: the turn that may pass, and whether a wait ran out
  uint32_t turn_ = 0;
};

}  // namespace stretto::bench
