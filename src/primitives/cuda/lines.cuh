// Lines: payload and readiness in one store, so that neither signal nor fence is needed. Two formats:
//
//   short   16 bytes: one unit of payload and the flag. Both halves are seen together because the store is
//   one
//           single-copy atomic access (PTX "b128").
//   wide    128 bytes: fifteen units and the flag, stored by eight neighbouring threads in one instruction.
//           That a warp's aligned 128 bytes arrive as one is no promise of the PTX model but a property of
//           NVLink and of the memory behind it; NCCL's LL128 protocol rests on it as well, on the same GPUs.
//           Where it does not hold, the planner must not choose this format.
//
// A flag holds the epoch and the operation's tag, so that no line of another epoch is ever taken for this
// one. Formats never share memory: one's payload could look like the other's flag.
#pragma once

#include "primitives/cuda/copy.cuh"

namespace stretto::cuda {

struct ShortLines {
  static constexpr size_t kLineBytes = 16;
  static constexpr size_t kLineUnits = 1;
  static constexpr int kLineThreads = 1;
  static constexpr bool kWide = false;
};

struct WideLines {
  static constexpr size_t kLineBytes = 128;
  static constexpr size_t kLineUnits = 15;
  static constexpr int kLineThreads = 8;
  static constexpr bool kWide = true;
};

// One thread's part of a line: which units, and where it lies.
template <typename Format>
struct LinePart {
  size_t unit;  // the first of at most two
  size_t at;    // bytes from the begin of the lines
  bool second;  // has two units; the last thread of a wide line has one and the flag, as has each of a short

  __device__ LinePart(size_t line, int lane) {
    if constexpr (Format::kWide) {
      const int part = lane % Format::kLineThreads;
      unit = line * Format::kLineUnits + static_cast<size_t>(2 * part);
      at = line * Format::kLineBytes + static_cast<size_t>(part) * sizeof(Pack);
      second = part != Format::kLineThreads - 1;
    } else {
      unit = line;
      at = line * Format::kLineBytes;
      second = false;
    }
  }
};

// Lines that `units` take, at least one.
template <typename Format>
__device__ size_t linesFor(size_t units) {
  return std::max<size_t>(1, (units + Format::kLineUnits - 1) / Format::kLineUnits);
}

// Calls visit(line, lane) for the lines that this thread has a part in. All threads of a warp make the same
// number of calls, so that they may speak to each other; `line` may lie behind the last.
template <typename Format, typename Visit>
__device__ void forEachLine(size_t lines, int thread, int threads, Visit visit) {
  constexpr int kWarp = 32;
  const int lane = thread % kWarp;
  const size_t perWarp = static_cast<size_t>(kWarp / Format::kLineThreads);
  const size_t step = static_cast<size_t>(threads / kWarp) * perWarp;
  for (size_t first = static_cast<size_t>(thread / kWarp) * perWarp; first < lines; first += step) {
    visit(first + static_cast<size_t>(lane / Format::kLineThreads), lane);
  }
}

// True for a part of a line whose flag has come, known to all its threads.
template <typename Format>
__device__ bool lineReady(const Pack& part, uint64_t flag, int lane) {
  const bool mine = part.high == flag;
  if constexpr (Format::kWide) {
    constexpr unsigned kAll = 0xffffffff;
    return __shfl_sync(kAll, mine, lane | (Format::kLineThreads - 1)) != 0;
  } else {
    return mine;
  }
}

}  // namespace stretto::cuda
