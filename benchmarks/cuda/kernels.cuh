// The few device instructions that the drivers' kernels share, with the memory ordering in the name. Every
// loop that waits looks at nanoseconds() against kDeadline.
#pragma once

#include <cstdint>

namespace stretto::bench::device {

constexpr uint64_t kDeadline = 2'000'000'000;

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

}  // namespace stretto::bench::device
