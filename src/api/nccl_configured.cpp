// nccl.h: each collective with a config for the one call. The config is judged here; what it asks for and
// cannot have is refused, and the rest is the plain call.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "api/config.hpp"
#include "api/enter.hpp"
#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "base/log.hpp"

namespace stretto::api {
namespace {

// A bound of thread blocks holds by itself where there are none.
Status checkHonoured(const char* function, const ncclCollConfig_t& config, bool onDevice) {
  const std::string_view wanted = config.algSelection == nullptr ? "" : config.algSelection;
  if (!wanted.empty() && config.forceAlgSelection != 0) {
    return fail(
        Code::kInvalidUsage,
        "%s: the algorithm of one call cannot be chosen (algSelection \"%s\"): leave forceAlgSelection "
        "0, or set STRETTO_ALGO for all calls",
        function, config.algSelection);
  }
  if (!wanted.empty()) {
    STRETTO_LOG(kInfo, kTuning, "%s: algSelection \"%s\" is not followed", function, config.algSelection);
  }
  if (config.launchCompletionEvent != nullptr) {
    return fail(Code::kInvalidUsage,
                "%s: launchCompletionEvent is not there yet: record an event after the call, which is done "
                "somewhat later",
                function);
  }
  const bool bounded =
      config.minCTAs != NCCL_CONFIG_UNDEF_INT || config.maxCTAs != NCCL_CONFIG_UNDEF_INT ||
      (config.CTAPolicy != NCCL_CONFIG_UNDEF_INT && config.CTAPolicy != NCCL_CTA_POLICY_DEFAULT);
  if (!bounded || !onDevice) return kOkStatus;
  return fail(
      Code::kInvalidUsage,
      "%s: thread blocks of one call on GPUs cannot be bounded yet: set maxCTAs in the ncclConfig_t of "
      "the communicator",
      function);
}

// `known`: what is given, as far as it goes, and defaults.
Status check(const char* function, const ncclCollConfig_t* given, bool onDevice, ncclCollConfig_t& known) {
  if (given == nullptr) return kOkStatus;
  constexpr size_t kShortest = offsetof(ncclCollConfig_t, ext);
  if (given->size < kShortest || given->magic != NCCL_API_MAGIC) {
    return fail(Code::kInvalidArgument,
                "%s: ncclCollConfig_t has size %zu, magic %#x; start from NCCL_COLLCONFIG_INITIALIZER (magic "
                "%#x)",
                function, given->size, given->size < kShortest ? 0 : given->magic, NCCL_API_MAGIC);
  }
  std::memcpy(&known, given, std::min(given->size, sizeof known));
  STRETTO_TRY(checkCommonMembers(function, known));
  STRETTO_TRY(checkMember(function, "forceAlgSelection", known.forceAlgSelection, 0, 1));
  return checkHonoured(function, known, onDevice);
}

ncclResult_t enterConfigured(const char* function, Call call, ncclComm_t comm, cudaStream_t stream,
                             const ncclCollConfig_t* config) {
  const InUse communicator(comm, function, true);
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  ncclCollConfig_t known = NCCL_COLLCONFIG_INITIALIZER;
  const Status status = check(function, config, communicator->self().onDevice(), known);
  call.profilerTag = known.userProfilerTag;
  return status.ok() ? enter(function, call, comm, stream) : finish(status);
}

}  // namespace
}  // namespace stretto::api

using stretto::Collective;
using stretto::api::enterConfigured;

STRETTO_API(ncclAllReduceConfig)
ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclAllReduceConfig, comm, (sendbuff, recvbuff, count, datatype, op, comm, stream, config));
  return enterConfigured("ncclAllReduceConfig",
                         {Collective::kAllReduce, sendbuff, recvbuff, count, datatype, -1, &op}, comm, stream,
                         config);
} catch (...) {
  return stretto::api::caught("ncclAllReduceConfig");
}

STRETTO_API(ncclBroadcastConfig)
ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 int root, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclBroadcastConfig, comm,
                  (sendbuff, recvbuff, count, datatype, root, comm, stream, config));
  return enterConfigured("ncclBroadcastConfig",
                         {Collective::kBroadcast, sendbuff, recvbuff, count, datatype, root}, comm, stream,
                         config);
} catch (...) {
  return stretto::api::caught("ncclBroadcastConfig");
}

STRETTO_API(ncclReduceConfig)
ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclReduceConfig, comm,
                  (sendbuff, recvbuff, count, datatype, op, root, comm, stream, config));
  return enterConfigured("ncclReduceConfig",
                         {Collective::kReduce, sendbuff, recvbuff, count, datatype, root, &op}, comm, stream,
                         config);
} catch (...) {
  return stretto::api::caught("ncclReduceConfig");
}

STRETTO_API(ncclAllGatherConfig)
ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclAllGatherConfig, comm, (sendbuff, recvbuff, sendcount, datatype, comm, stream, config));
  return enterConfigured("ncclAllGatherConfig",
                         {Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype}, comm, stream,
                         config);
} catch (...) {
  return stretto::api::caught("ncclAllGatherConfig");
}

STRETTO_API(ncclReduceScatterConfig)
ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclReduceScatterConfig, comm,
                  (sendbuff, recvbuff, recvcount, datatype, op, comm, stream, config));
  return enterConfigured("ncclReduceScatterConfig",
                         {Collective::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, -1, &op}, comm,
                         stream, config);
} catch (...) {
  return stretto::api::caught("ncclReduceScatterConfig");
}

STRETTO_API(ncclAlltoAllConfig)
ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclAlltoAllConfig, comm, (sendbuff, recvbuff, count, datatype, comm, stream, config));
  return enterConfigured("ncclAlltoAllConfig", {Collective::kAllToAll, sendbuff, recvbuff, count, datatype},
                         comm, stream, config);
} catch (...) {
  return stretto::api::caught("ncclAlltoAllConfig");
}

STRETTO_API(ncclGatherConfig)
ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclGatherConfig, comm, (sendbuff, recvbuff, count, datatype, root, comm, stream, config));
  return enterConfigured("ncclGatherConfig", {Collective::kGather, sendbuff, recvbuff, count, datatype, root},
                         comm, stream, config);
} catch (...) {
  return stretto::api::caught("ncclGatherConfig");
}

STRETTO_API(ncclScatterConfig)
ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config) try {
  STRETTO_PASS_ON(ncclScatterConfig, comm, (sendbuff, recvbuff, count, datatype, root, comm, stream, config));
  return enterConfigured("ncclScatterConfig",
                         {Collective::kScatter, sendbuff, recvbuff, count, datatype, root}, comm, stream,
                         config);
} catch (...) {
  return stretto::api::caught("ncclScatterConfig");
}
