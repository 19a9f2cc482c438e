// How a warp goes through the Lamport lines of an operation that puts and reads them in turns
// (cuda_turns.cuh). Plain arithmetic, for primitives/cuda.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "primitives/cuda/memory.cuh"

namespace stretto::cuda {

// A warp's way through the lines of an operation, one for each of its threads at a time. What one epoch
// cannot hold goes in rounds of equal length but for a line. In each of them every thread that takes part has
// three lines or more, and in all but the first its warp fences once, before a line that is neither the first
// nor the last.
class LineCursor {
 public:
  __device__ LineCursor(uint32_t lines, uint32_t most, uint32_t thread, uint32_t threads)
      : lines_(lines),
        lane_(thread % kWarp),
        begin_(thread - lane_),
        first_(begin_),
        place_(begin_),
        end_(lines),
        step_(threads),
        each_(lines) {
    if (lines > most) cut(most);
  }
  __device__ bool begins() const { return begin_ < step_ && first_ < end_; }
  __device__ uint32_t line() const { return first_ + lane_; }
  __device__ bool isInside() const { return line() < end_; }
  // Where it lies, in bytes from the begin of its round's lines.
  __device__ uint32_t at() const { return (place_ + lane_) * static_cast<uint32_t>(sizeof(Pack)); }
  __device__ bool isToFence() const { return untilFence_ == 0; }
  // False: there is none. `endsRound()` is called before the next that is of another round.
  template <typename EndsRound>
  __device__ bool next(EndsRound endsRound) {
    first_ += step_;
    place_ += step_;
    --untilFence_;
    if (first_ < end_) return true;
    if (end_ == lines_) return false;
    endsRound();
    first_ = end_ + begin_;
    place_ = begin_;
    untilFence_ = fenceAfter_;
    lengthen();
    return true;
  }

 private:
  static constexpr uint32_t kWarp = 32;
  static constexpr uint32_t kLeast = 3;  // lines of a thread in a round

  // Warps fence at different times, so that the link is never left to none.
  __device__ void cut(uint32_t most) {
    const uint32_t rounds = (lines_ + most - 1) / most;
    each_ = lines_ / rounds;
    longer_ = lines_ % rounds;
    step_ = std::min(step_, each_ / kLeast / kWarp * kWarp);
    fenceAfter_ = 1 + begin_ / kWarp % (each_ / step_ - 2);
    end_ = 0;
    lengthen();
  }
  __device__ void lengthen() {
    end_ += each_ + (longer_ != 0 ? 1 : 0);
    longer_ -= longer_ != 0 ? 1 : 0;
  }

  uint32_t lines_;
  uint32_t lane_;
  uint32_t begin_;             // the warp's first thread
  uint32_t first_;             // and its line
  uint32_t place_;             // of that one, from the round's begin on
  uint32_t end_;               // of the round
  uint32_t step_;              // threads that take part
  uint32_t each_;              // lines of a round
  uint32_t longer_ = 0;        // so many rounds from the next on have one line more
  uint32_t fenceAfter_ = 1;    // lines from a round's begin to its fence,
  uint32_t untilFence_ = ~0u;  // and from this one on; the first round needs none
};

}  // namespace stretto::cuda
