// What the threads of a block share, how some of them meet, and what they do when a wait takes long: looks at
// the clock and the host's word, and the report of whoever gives up first.
#pragma once

#include "primitives/backend.hpp"
#include "primitives/cuda/memory.cuh"
#include "primitives/cuda/state.hpp"

namespace stretto::cuda {

// Parameters of a kernel that are needed after it has waited for the one before. The assembler loads a
// parameter again wherever that saves a register, through a cache that every launch finds cold (0.06 us,
// docs/results/2026-11-28-gpu-parameters). What has been in shared memory it keeps.
struct Given {
  uint64_t tag;
  int32_t rank;
  uint32_t region;  // of one source's lines
  uint32_t slots;
};

struct BlockShared {
  static constexpr int kMostStages = 3;
  static constexpr int kMostWarps = 16;
  uint32_t done[kMostStages * kMostWarps];  // chunks that each warp of each stage has done, in warp chunks
  uint32_t progress[kMostStages];           // chunks that each stage of a pipeline has done
  uint32_t failed;                          // somebody gave up
  uint32_t looked;                          // when a thread looked at the host's word
  uint32_t word;                            // the host's, if it was not 0
  uint32_t awaits;                          // which kind of Awaited the block's waits are
  // When a thread told the host that it waits for that. Nobody clears it, which would be work for every
  // block: what an earlier kernel of this library has left is older than any wait that is long, and what
  // another one has left costs one look if it happens to be the present span.
  uint32_t reportedOf[kAwaited];
  uint64_t began;  // the block's turn, if stamps are wanted
  Given given;
};

// Of a block whose warps use links: how far each has come, by peer and warp. In memory of a thread's own
// it would be a kilobyte for each.
struct LinksShared : BlockShared {
  ChunkCursors cursors[kMaxRanks][WindowLayout::kWarpChunkCredits / 2];
};

// The operation's number in its launch. Several share one in lines only: backends that live in memory are not
// made larger by it.
struct OnlyOne {
  static constexpr uint32_t number = 0;
  static constexpr uint32_t firstChannel = 0;

  __device__ explicit OnlyOne(const Context&) {}
  __device__ const Called& called(const Context& context) const { return context.called; }
};
struct OneOfSeveral {
  const Called* its;
  uint32_t number = 0;
  uint32_t firstChannel = 0;  // that has part in it

  __device__ explicit OneOfSeveral(const Context& context) : its(&context.called) {}
  __device__ const Called& called(const Context&) const { return *its; }
};

// Some warps of a block, which have a barrier of their own.
struct Threads {
  int begin;
  int count;
  int barrier;

  __device__ int rank() const { return static_cast<int>(threadIdx.x) - begin; }
  __device__ int size() const { return count; }
  static constexpr int kOneWarp = -1;  // instead of a barrier
  __device__ void sync() const {
    if (barrier == kOneWarp) {
      __syncwarp();
    } else {
      syncThreads(barrier, count);
    }
  }
};

// What who waits may have seen instead: nothing.
struct NothingDiffers {
  __device__ bool operator()() const { return false; }
};

// How long one thread has waited.
struct WaitSoFar {
  uint32_t polls = 0;
  uint32_t deadline = 0;  // a tick; 0: none yet

  __device__ bool isDue() { return ++polls % kPollsPerLook == 0; }
};

// A wait that has become long says so to the host (communicator/device/kernel_waits.hpp), one thread of a
// block for each peer, sixty times a second.
__device__ inline void reportLongWait(const Context& context, BlockShared& shared, uint32_t tick,
                                      uint32_t deadline, int peer) {
  if (peer == kNobody || !isLong(tick, deadline, context.timeoutTicks)) return;
  const int what = awaitedAt(static_cast<Awaited>(loadShared(shared.awaits)), peer);
  const uint32_t span = tick / LongLook::kTicks;
  if (atomicExch(&shared.reportedOf[what], span) == span) return;
  // How long the wait has lasted is computed again: kept since the first line, it would make kernels spill.
  keepAtHand(tick);
  keepAtHand(deadline);
  storeRelaxed64(&context.control->longLooks[what],
                 LongLook::at(static_cast<uint32_t>(context.launch), tick,
                              ticksWaited(tick, deadline, context.timeoutTicks))
                     .word());
}

// What ends a wait: nothing (kOk), another thread of the rank that gave up, the deadline, or the host's
// word. That word lies in the host's memory, and a wait can be that of all threads of a GPU: were each to
// look, they would keep the bus so busy for milliseconds that the rank they wait for is late because of it.
// One thread of a block looks, twice a millisecond.
struct Look {
  Code code;
  uint32_t deadline;
};
__device__ inline Look lookAround(const Context& context, BlockShared& shared, uint32_t deadline, int peer) {
  if (loadShared(shared.failed) != 0) return {Code::kRemote, deadline};
  const uint32_t tick = static_cast<uint32_t>(nanoseconds() >> kTickBits);
  if (deadline == 0) deadline = deadlineOf(tick, context.timeoutTicks);
  if (deadline - tick > kMostTicks) return {Code::kTimeout, deadline};
  reportLongWait(context, shared, tick, deadline, peer);
  if (atomicExch(&shared.looked, tick) == tick) return {Code::kOk, deadline};
  const uint32_t word = loadRelaxed32(&context.control->abort) & 0xff;
  if (word != 0) storeShared(shared.word, word);
  if (word != 0) return {static_cast<Code>(word), deadline};
  // What another block of this rank has given up, the others will not see the end of either.
  const bool others = loadRelaxed32(&context.control->reported) != 0;
  return {others ? Code::kRemote : Code::kOk, deadline};
}

// Who gives up, and because of whom.
struct Failure {
  Code code;
  int peer;
  int channel;
  uint64_t theirTag;
};
__device__ inline void reportOnce(const Context& context, const Called& called, BlockShared& shared,
                                  Failure failure) {
  Control& control = *context.control;
  // That word is the host's: thousands of threads that ask for it would take milliseconds.
  if (loadShared(shared.failed) != 0) return;
  // The host has ended the wait, though only one of the threads that wait has seen it.
  if (const uint32_t word = loadShared(shared.word); word != 0 && failure.code == Code::kTimeout) {
    failure.code = static_cast<Code>(word);
  }
  // Before others of the block hear of it, who would say that a peer has failed.
  const bool isFirst = atomicCAS_system(&control.reported, 0u, 1u) == 0;
  shared.failed = 1;
  if (!isFirst) return;
  control.code = static_cast<uint32_t>(failure.code);
  control.peer = failure.peer;
  control.channel = static_cast<uint32_t>(failure.channel);
  control.sequence = called.sequence;
  control.theirTag = failure.theirTag;
  __threadfence_system();
  atomicExch_system(&control.reported, 2u);
}

// The same as functions of their own, for kernels that a call does not make spill: what they run in
// the common case stays short.
__device__ __noinline__ inline Look lookAroundApart(const Context& context, BlockShared& shared,
                                                    uint32_t deadline, int peer) {
  return lookAround(context, shared, deadline, peer);
}
__device__ __noinline__ inline void reportApart(const Context& context, const Called& called,
                                                BlockShared& shared, Failure failure) {
  reportOnce(context, called, shared, failure);
}

}  // namespace stretto::cuda
