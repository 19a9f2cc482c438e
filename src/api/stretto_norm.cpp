// stretto.h: all-reduce with residual add and RMSNorm.
#include <cstddef>
#include <cstring>

#include "api/enter.hpp"
#include "api/handles.hpp"
#include "communicator/handover/foreign.hpp"
#include "platform/export.hpp"
#include "stretto.h"

namespace stretto::api {
namespace {

constexpr const char* kFunction = "strettoAllReduceAddRmsNorm";

static_assert(static_cast<int>(Scaling::kPerToken) == strettoScalePerToken &&
              static_cast<int>(Scaling::kPerTensor) == strettoScalePerTensor);

// What a caller of another release means: fields that it does not know are zero, and those that this library
// does not know must be.
Status readStep(const strettoAddRmsNorm_t* given, strettoAddRmsNorm_t& step) {
  constexpr size_t kFirst = offsetof(strettoAddRmsNorm_t, scales) + sizeof(float*);  // of the first release
  constexpr size_t kMost = 4096;  // no release will have so many fields: it was not set
  if (given == nullptr || given->size < kFirst || given->size > kMost) {
    return fail(Code::kInvalidArgument,
                "%s: begin with STRETTO_ADD_RMS_NORM_INITIALIZER, which sets size to "
                "%zu",
                kFunction, sizeof step);
  }
  const size_t known = given->size < sizeof step ? given->size : sizeof step;
  step = {};
  std::memcpy(&step, given, known);
  for (size_t at = known; at < given->size; ++at) {
    if (reinterpret_cast<const char*>(given)[at] == 0) continue;
    return fail(Code::kInvalidUsage,
                "%s: the caller sets a field at byte %zu that this library does not know", kFunction, at);
  }
  return kOkStatus;
}

Status checkStep(const strettoAddRmsNorm_t& step) {
  const int scaling = static_cast<int>(step.scaling);
  const int quantised = static_cast<int>(step.quantisedType);
  if (scaling < strettoScaleNone || scaling > strettoScalePerTensor) {
    return fail(Code::kInvalidArgument, "%s: %d is not a strettoScale_t", kFunction, scaling);
  }
  if (scaling != strettoScaleNone && (quantised < 0 || quantised >= kDataTypes)) {
    return fail(Code::kInvalidArgument, "%s: %d is not a data type", kFunction, quantised);
  }
  size_t count = 0;
  if (__builtin_mul_overflow(step.tokens, step.hidden, &count)) {
    return fail(Code::kInvalidArgument, "%s: %zu tokens of %zu elements do not fit in memory", kFunction,
                step.tokens, step.hidden);
  }
  return kOkStatus;
}

NormArguments normOf(const strettoAddRmsNorm_t& step) {
  NormArguments norm;
  norm.hidden = step.tokens != 0 ? step.hidden : 1;  // without tokens nothing has this size
  norm.residual = static_cast<const std::byte*>(step.residual);
  norm.bias = static_cast<const std::byte*>(step.bias);
  norm.gamma = static_cast<const std::byte*>(step.gamma);
  norm.residualOut = static_cast<std::byte*>(step.residualOut);
  norm.normalised = static_cast<std::byte*>(step.normalised);
  norm.reduced = static_cast<std::byte*>(step.reduced);
  norm.epsilon = step.epsilon;
  norm.scaling = static_cast<Scaling>(step.scaling);
  const bool quantises = norm.scaling != Scaling::kNone;
  norm.quantised = quantises ? static_cast<std::byte*>(step.quantised) : nullptr;
  norm.scales = quantises ? step.scales : nullptr;
  norm.quantisedType = quantises ? static_cast<DataType>(step.quantisedType) : DataType{};
  return norm;
}

}  // namespace
}  // namespace stretto::api

using namespace stretto::api;

extern "C" STRETTO_EXPORTED ncclResult_t strettoAllReduceAddRmsNorm(const strettoAddRmsNorm_t* given,
                                                                    ncclComm_t comm,
                                                                    cudaStream_t stream) try {
  strettoAddRmsNorm_t step;
  stretto::Status status = readStep(given, step);
  if (status.ok()) status = checkStep(step);
  if (!status.ok()) return finish(status);
  const stretto::NormArguments norm = normOf(step);
  constexpr ncclRedOp_t kSum = ncclSum;
  return enter(kFunction,
               {stretto::Collective::kAllReduceAddRmsNorm, step.input, step.residualOut,
                step.tokens * step.hidden, step.type, -1, &kSum, 0, &norm},
               comm, stream);
} catch (...) {
  return stretto::api::caught(kFunction);
}
