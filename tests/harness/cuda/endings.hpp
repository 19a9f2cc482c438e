// Waits for a rank's stream with a timeout, and reads its communicator's asynchronous error.
#pragma once

#include <cuda_runtime_api.h>

#include "harness/ranks.hpp"

namespace stretto::testing {

// Waits for the stream, but not for ever.
inline bool streamEnds(const Member& member, double seconds) {
  return eventually(seconds, [&] { return cudaStreamQuery(member.stream()) != cudaErrorNotReady; });
}
inline ncclResult_t errorOf(const Member& member) {
  ncclResult_t later = ncclSuccess;
  member.expect(ncclCommGetAsyncError(member.comm, &later), "ncclCommGetAsyncError");
  return later;
}

}  // namespace stretto::testing
