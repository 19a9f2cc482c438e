// What the kernels of one rank share, between blocks, between launches and with the host. Plain C++.
//
//   Context     goes into every launch by value: where everything is, and which operation this is
//   LaneState   device memory, one per block number: what survives a launch, so that graphs replay
//   Control     pinned host memory: the host's word to end, and the first failing block's report
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "primitives/window.hpp"

namespace stretto::cuda {

struct LinkCursors {
  uint64_t sent;
  uint64_t received;
};

// Written by the one block that runs on this lane, at its end; read at the next one's begin.
struct alignas(128) LaneState {
  uint64_t epoch;
  uint64_t finished;  // operations
  LinkCursors links[kMaxRanks];
};

// As WindowHeader::abort: low 8 bits Code, then peer + 1.
struct Control {
  alignas(64) uint32_t abort;  // the host writes
  // One block of the device writes: `reported` goes from 0 to 1 when it begins, to 2 when the rest is there.
  alignas(64) uint32_t reported;
  uint32_t code;
  int32_t peer;
  uint32_t lane;
  uint64_t sequence;
  uint64_t theirTag;
};

struct Context {
  std::byte* windows[kMaxRanks];  // by rank
  WindowLayout layout;            // of one lane
  LaneState* lanes;
  Control* control;
  uint64_t timeoutNanoseconds;  // of every wait
  uint64_t tag;                 // of the operation
  uint64_t sequence;
  int32_t rank;
  int32_t ranks;
};
static_assert(std::is_trivially_copyable_v<Context> && sizeof(Context) < 1024);

}  // namespace stretto::cuda
