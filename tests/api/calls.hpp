// Calls of nccl.h that several tests make.
#pragma once

#include <string>

#include "harness/ranks.hpp"
#include "nccl.h"

namespace stretto::testing {

// In words, whatever communicator it was of.
inline std::string lastNcclError() {
  return ncclGetLastError(nullptr);
}
// The sum of ones from all ranks of `comm`, which is their number.
inline int sumOfOnes(const Member& member, ncclComm_t comm, const char* what) {
  int value = 1;
  member.expect(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), what);
  return value;
}

}  // namespace stretto::testing
