// The few device instructions that the drivers' kernels share, with the memory ordering in the name. Every
// loop that waits looks at nanoseconds() against kDeadline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto::bench::device {

constexpr uint64_t kDeadline = 2'000'000'000;

// 16 bytes that cross as one.
struct alignas(16) Line {
  uint64_t data;
  uint64_t epoch;
};

__device__ inline uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ inline uint32_t loadRelaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline Line loadLineRelaxed(const Line* from) {
  Line line;
  asm volatile("{ .reg .b128 both; ld.relaxed.sys.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
               : "=l"(line.data), "=l"(line.epoch)
               : "l"(from)
               : "memory");
  return line;
}

__device__ inline void storeLineRelaxed(Line* to, Line line) {
  asm volatile(
      "{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.sys.global.b128 [%0], both; }" ::"l"(to),
      "l"(line.data), "l"(line.epoch)
      : "memory");
}

__device__ inline uint64_t loadAcquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline void storeRelease(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// By one thread: a copy from shared to global memory, of a multiple of 16 bytes, by the copy unit of its
// multiprocessor.
__device__ inline void storeBulk(void* to, const void* sharedFrom, uint32_t bytes) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(sharedFrom));
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}

// Until at most kPending of this thread's bulk copies still read shared memory.
template <int kPending>
__device__ inline void waitBulkRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Until all of them are done.
__device__ inline void waitBulkDone() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// What was written to shared memory by plain stores is there for bulk copies that follow.
__device__ inline void publishToBulk() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace stretto::bench::device
