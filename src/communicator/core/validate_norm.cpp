// The judgement of validate.cpp for an all-reduce with RMSNorm, which has up to nine buffers.
#include <array>
#include <cmath>
#include <cstdint>

#include "communicator/core/host_memory.hpp"
#include "communicator/core/operation.hpp"
#include "primitives/norm.hpp"

namespace stretto::communicator {
namespace {

constexpr const char* kName = nameOf(Collective::kAllReduceAddRmsNorm);

// In the order of buffersOfNorm().
enum Which { kInput, kResidual, kBias, kGamma, kResidualOut, kNormalised, kReduced };

uintptr_t beginOf(const NormBuffer& buffer) {
  return reinterpret_cast<uintptr_t>(buffer.place);
}

Status checkShape(const Operation& operation) {
  const NormArguments& norm = operation.norm;
  if (!hasNorm(operation.type)) {
    return fail(Code::kInvalidArgument, "%s: tokens are float32, float16 or bfloat16, and these are %s",
                kName, nameOf(operation.type));
  }
  if (norm.hidden == 0 || norm.hidden > UINT32_MAX) {
    return fail(Code::kInvalidArgument, "%s: hidden is %zu: a token has 1 to %u elements", kName, norm.hidden,
                UINT32_MAX);
  }
  if (operation.bytes() > SIZE_MAX / 2 || operation.count > SIZE_MAX / 2 / sizeOf(operation.type)) {
    return fail(Code::kInvalidArgument, "%s: %zu elements of %s do not fit in memory", kName, operation.count,
                nameOf(operation.type));
  }
  if (!(norm.epsilon >= 0) || std::isinf(norm.epsilon)) {
    return fail(Code::kInvalidArgument, "%s: epsilon is %g: it must be 0 or a positive number", kName,
                static_cast<double>(norm.epsilon));
  }
  if (norm.scaling != Scaling::kNone && !isQuantised(norm.quantisedType)) {
    return fail(Code::kInvalidArgument, "%s: the quantised type is %s: there are float8e4m3 and float8e5m2",
                kName, nameOf(norm.quantisedType));
  }
  return kOkStatus;
}

Status checkPresence(const Operation& operation) {
  const NormArguments& norm = operation.norm;
  if (operation.send == nullptr || norm.residualOut == nullptr) {
    return fail(Code::kInvalidArgument, "%s: %s is null, with %zu elements to reduce", kName,
                operation.send == nullptr ? "input" : "residualOut", operation.count);
  }
  if (norm.scaling == Scaling::kNone) return kOkStatus;
  if (norm.quantised == nullptr || norm.scales == nullptr) {
    return fail(Code::kInvalidArgument, "%s: %s is null, and the tokens are to be scaled per %s", kName,
                norm.quantised == nullptr ? "quantised" : "scales",
                norm.scaling == Scaling::kPerToken ? "token" : "tensor");
  }
  return kOkStatus;
}

// Or both are read alone.
bool areApart(const NormBuffer& one, const NormBuffer& other) {
  if (one.place == nullptr || other.place == nullptr || (!one.isWritten && !other.isWritten)) return true;
  return beginOf(one) + one.bytes <= beginOf(other) || beginOf(other) + other.bytes <= beginOf(one);
}

// Which buffers may be the same memory; a third one that is there too is judged with each of them.
bool mayShare(size_t read, size_t written) {
  if (read == kResidual) return written == kResidualOut;
  return read == kInput && written >= kResidualOut && written <= kReduced;
}

Status checkOverlaps(const Operation& operation) {
  const auto buffers = buffersOfNorm(operation);
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (size_t j = i + 1; j < buffers.size(); ++j) {
      const NormBuffer &one = buffers[i], &other = buffers[j];
      if (areApart(one, other) || (mayShare(i, j) && one.place == other.place)) continue;
      return fail(Code::kInvalidArgument,
                  "%s: %s [%p, +%zu) and %s [%p, +%zu) overlap; only residualOut may be residual or "
                  "input, and normalised or reduced may be input",
                  kName, one.name, one.place, one.bytes, other.name, other.place, other.bytes);
    }
  }
  return kOkStatus;
}

}  // namespace

std::array<NormBuffer, kNormBuffers> buffersOfNorm(const Operation& operation) {
  const NormArguments& norm = operation.norm;
  const size_t all = operation.bytes();
  const size_t token = norm.hidden * sizeOf(operation.type);
  const bool perTensor = norm.scaling == Scaling::kPerTensor;
  const size_t tokens = operation.count / norm.hidden;
  return {{{"input", operation.send, all, false},
           {"residual", norm.residual, all, false},
           {"bias", norm.bias, token, false},
           {"gamma", norm.gamma, token, false},
           {"residualOut", norm.residualOut, all, true},
           {"normalised", norm.normalised, all, true},
           {"reduced", norm.reduced, all, true},
           {"quantised", norm.quantised, operation.count, true},
           {"scales", norm.scales, (perTensor ? 1 : tokens) * sizeof(float), !perTensor}}};
}

Status validateNorm(const Operation& operation) {
  STRETTO_TRY(checkShape(operation));
  if (operation.count == 0) return kOkStatus;
  STRETTO_TRY(checkPresence(operation));
  return checkOverlaps(operation);
}

Status refuseDeviceMemoryOfNorm(const Operation& operation, int rank) {
  for (const NormBuffer& buffer : buffersOfNorm(operation)) {
    if (buffer.place != nullptr) STRETTO_TRY(refuseDeviceMemory(kName, buffer.name, buffer.place, rank));
  }
  return kOkStatus;
}

}  // namespace stretto::communicator
