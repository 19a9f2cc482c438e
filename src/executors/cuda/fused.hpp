// Which operations of a group may share one launch (kernels.hpp: Fused). Plain C++, the engine's.
//
// What separate launches gave is kept: order. Blocks of a fused launch go on to the next operation while
// others are still at the one before, so operations may share one only if none touches what another writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "executors/cuda/engine.hpp"
#include "executors/cuda/kernels.hpp"

namespace stretto::executors::cuda {

// Of the larger buffer. A launch costs the host 2 us and the stream half a microsecond or more, which is much
// beside an operation of 2 to 5 us; above this the bytes take longer than that, and a kernel of its own has
// as many threads as the operation wants, and the registers that were measured best.
inline constexpr size_t kMostFusedBytes = size_t{256} << 10;

// What an operation reads or writes of its user's memory.
struct Range {
  uintptr_t begin;
  size_t bytes;

  constexpr bool meets(const Range& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};

// Both buffers, for collectives that send and receive on every rank.
struct Ranges {
  Range reads;
  Range writes;

  Ranges(const Launch& launch, int ranks) : reads(), writes() {
    const Arguments& a = launch.arguments;
    reads = {reinterpret_cast<uintptr_t>(a.send), a.bytes() * blocksSent(launch.collective, ranks)};
    writes = {reinterpret_cast<uintptr_t>(a.receive), a.bytes() * blocksReceived(launch.collective, ranks)};
  }
  constexpr bool mayRunBeside(const Ranges& other) const {
    return !writes.meets(other.writes) && !writes.meets(other.reads) && !reads.meets(other.writes);
  }
  constexpr size_t larger() const { return std::max(reads.bytes, writes.bytes); }
};

// By itself; the kernel must have a form for several.
inline bool isSmall(const Launch& launch, int ranks) {
  return !launch.scaled && launch.arguments.count != 0 && Ranges(launch, ranks).larger() <= kMostFusedBytes;
}

// Whether another may be added to those that share a launch.
inline bool hasRoomFor(std::span<const Launch> together, const Launch& next, int ranks) {
  if (together.size() >= Fused::kMost) return false;
  const Ranges its(next, ranks);
  return std::all_of(together.begin(), together.end(),
                     [&](const Launch& one) { return Ranges(one, ranks).mayRunBeside(its); });
}

}  // namespace stretto::executors::cuda
