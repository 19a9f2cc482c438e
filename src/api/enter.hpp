// The way from a C call to submit(), for src/api: what an entry point of a collective or a transfer says.
#pragma once

#include <cstdint>

#include "base/types.hpp"
#include "nccl.h"
#include "primitives/operation.hpp"

namespace stretto::api {

struct Call {
  Collective collective;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  int root = -1;
  const ncclRedOp_t* op = nullptr;
  uint64_t profilerTag = 0;  // userProfilerTag of a config
  const NormArguments* norm = nullptr;
};

// Checks the handle, the type, the operator and the stream.
ncclResult_t enter(const char* function, const Call& call, ncclComm_t handle, cudaStream_t stream);

}  // namespace stretto::api
