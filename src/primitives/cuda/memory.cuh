// Loads, stores, fences, clocks and copy units of the Cuda backend, as the PTX memory model names them (PTX
// ISA 8.3 and later, chapters "Memory Consistency Model" and "ld"/"st"). Memory that is
// polled is read by relaxed or acquire loads, and written by peers with relaxed or release stores. A reader
// erases its own lines with plain stores; a fence or the kernel's end orders these.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto::cuda {

// Sixteen bytes.
struct alignas(16) Pack {
  uint64_t low;
  uint64_t high;
};

// Single-copy atomic: both words are seen together or not at all.
__device__ inline void storeRelaxed(void* at, Pack value) {
  asm volatile("{ .reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.sys.global.b128 [%0], v; }" ::"l"(at),
               "l"(value.low), "l"(value.high)
               : "memory");
}
__device__ inline Pack loadRelaxed(const void* at) {
  Pack value;
  asm volatile("{ .reg .b128 v; ld.relaxed.sys.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }"
               : "=l"(value.low), "=l"(value.high)
               : "l"(at)
               : "memory");
  return value;
}
__device__ inline uint32_t loadRelaxed32(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

__device__ inline uint64_t loadRelaxed64(const uint64_t* at) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__device__ inline void storeRelaxed64(uint64_t* at, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

// Without waiting for what was there: the value takes a trip to the cache that all multiprocessors share.
__device__ inline void addRelaxed64(uint64_t* at, uint64_t more) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(more) : "memory");
}

// Computes `value` here and keeps it, where a compiler would do so again or later.
template <typename T>
__device__ inline void keepAtHand(T& value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    asm volatile("" : "+r"(value));
  } else {
    asm volatile("" : "+l"(value));
  }
}

// Orders everything that this thread, and threads it has synchronised with, did before against what follows,
// for all devices and the host.
__device__ inline void fenceSystem() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

// The same for a warp, all of which comes here: one thread fences for all, as each that does takes its turn.
__device__ inline void fenceSystemByWarp() {
  constexpr unsigned kWarp = 32;
  __syncwarp();
  if (threadIdx.x % kWarp == 0) fenceSystem();
  __syncwarp();
}

// The same for the threads of this block alone.
__device__ inline void fenceBlock() {
  asm volatile("fence.acq_rel.cta;" ::: "memory");
}

// A word that says that what this thread, and its warp before a __syncwarp(), has written is there.
__device__ inline void storeRelease(uint64_t* at, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ inline uint64_t loadAcquire(const uint64_t* at) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

// Bulk accesses: sixteen bytes that nobody else touches now. Not kept in the nearest cache: each is used
// once.
__device__ inline Pack loadPack(const void* at) {
  Pack value;
  asm volatile("ld.global.L1::no_allocate.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.low), "=l"(value.high)
               : "l"(at)
               : "memory");
  return value;
}
__device__ inline void storePack(void* at, Pack value) {
  asm volatile("st.global.L1::no_allocate.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(value.low), "l"(value.high)
               : "memory");
}

// Units of a user's buffer.
__device__ inline uint64_t loadUnit(const void* begin, size_t unit) {
  return static_cast<const uint64_t*>(begin)[unit];
}
__device__ inline void storeUnit(void* begin, size_t unit, uint64_t value) {
  static_cast<uint64_t*>(begin)[unit] = value;
}

// The memory that the threads of a block share, one T, uninitialised; and its words that one thread tells and
// others look at, ordered by fenceBlock() on both sides.
template <typename T>
__device__ __forceinline__ T& blockShared() {
  __shared__ T shared;
  return shared;
}
__device__ inline uint32_t loadShared(const uint32_t& word) {
  return *static_cast<const volatile uint32_t*>(&word);
}
__device__ inline void storeShared(uint32_t& word, uint32_t value) {
  *static_cast<volatile uint32_t*>(&word) = value;
}

// A thread that waits polls this many times before it looks at the clock and at the host's word: about a
// millisecond of a GPU.
inline constexpr uint32_t kPollsPerLook = 1024;

__device__ inline uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Programmatic dependent launch. The first lets the next kernel of the stream begin its preparations; the
// second waits until the kernel before this one has ended and its writes are visible. Both do nothing in a
// launch without the attribute.
__device__ inline void letNextBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void awaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A barrier among `threads` threads of a block (a multiple of 32) that share the number `barrier`.
__device__ inline void syncThreads(int barrier, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// The same, and true for all if it is for any.
__device__ inline bool anyThread(int barrier, int threads, bool mine) {
  int any;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.s32 p, %3, 0; barrier.red.or.pred.aligned q, %1, %2, p; selp.s32 %0, 1, 0, "
      "q; }"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<int>(mine))
      : "memory");
  return any != 0;
}

}  // namespace stretto::cuda
