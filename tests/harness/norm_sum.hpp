// An all-reduce with RMSNorm that is asked for the sum alone: the same result as an all-reduce. For the tests
// that every algorithm passes through.
#pragma once

#include "nccl.h"
#include "primitives/operation.hpp"
#include "stretto.h"

namespace stretto::testing {

// Elements of a token, of an operation of `count` elements.
inline size_t hiddenOf(size_t count) {
  return count % 64 == 0 && count != 0 ? 64 : 1;
}

inline NormArguments sumAlone(const Arguments& arguments) {
  NormArguments norm{};
  norm.hidden = hiddenOf(arguments.count);
  norm.residualOut = arguments.receive;
  return norm;
}

inline ncclResult_t sumByNorm(const void* send, void* receive, size_t count, ncclDataType_t type,
                              ncclComm_t comm, cudaStream_t stream) {
  strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
  step.hidden = hiddenOf(count);
  step.tokens = count / step.hidden;
  step.type = type;
  step.input = send;
  step.residualOut = receive;
  return strettoAllReduceAddRmsNorm(&step, comm, stream);
}

}  // namespace stretto::testing
