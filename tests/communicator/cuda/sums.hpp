// All-reduces that several GPU tests enqueue: floats from a rank's first buffer into its second, or in place.
#pragma once

#include <cstddef>

#include "harness/ranks.hpp"

namespace stretto::testing {

inline constexpr size_t kSummedCount = 100000;

inline float* inputOf(const Member& member) {
  return reinterpret_cast<float*>(member.device->at(0, nullptr));
}
inline float* outputOf(const Member& member) {
  return reinterpret_cast<float*>(member.device->at(1, nullptr));
}
inline ncclResult_t sum(const Member& member, size_t count = kSummedCount) {
  return ncclAllReduce(inputOf(member), outputOf(member), count, ncclFloat, ncclSum, member.comm,
                       member.stream());
}
inline bool sumInPlace(const Member& member, size_t count) {
  float* const array = inputOf(member);
  return member.expect(ncclAllReduce(array, array, count, ncclFloat, ncclSum, member.comm, member.stream()),
                       "all-reduce");
}

}  // namespace stretto::testing
