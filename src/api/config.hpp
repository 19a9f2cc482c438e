// Reads ncclConfig_t as every version of NCCL lays it out.
#pragma once

#include "communicator/core/communicator.hpp"
#include "nccl.h"

namespace stretto::api {

inline constexpr int kMostCtas = 1 << 16;  // thread blocks of an operation

// A member is undefined or within the bounds, which are NCCL's. `of` is what an error names: a structure or a
// function.
Status checkMember(const char* of, const char* name, int value, int low, int high);

// The members that ncclConfig_t and ncclCollConfig_t both have.
template <typename EitherConfig>
Status checkCommonMembers(const char* of, const EitherConfig& config) {
  constexpr int kMostCluster = 8;  // blocks of a cluster that every GPU with clusters can run
  constexpr int kAllPolicies = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
  STRETTO_TRY(checkMember(of, "minCTAs", config.minCTAs, 1, kMostCtas));
  STRETTO_TRY(checkMember(of, "maxCTAs", config.maxCTAs, 1, kMostCtas));
  STRETTO_TRY(checkMember(of, "nvlsCTAs", config.nvlsCTAs, 1, kMostCtas));
  STRETTO_TRY(checkMember(of, "cgaClusterSize", config.cgaClusterSize, 0, kMostCluster));
  STRETTO_TRY(checkMember(of, "CTAPolicy", config.CTAPolicy, NCCL_CTA_POLICY_DEFAULT, kAllPolicies));
  if (config.maxCTAs == NCCL_CONFIG_UNDEF_INT || config.minCTAs <= config.maxCTAs) return kOkStatus;
  return fail(Code::kInvalidArgument, "%s: minCTAs is %d, more than maxCTAs, which is %d", of, config.minCTAs,
              config.maxCTAs);
}

// `given` over `defaults`; null gives the defaults. `size` is read first: fields beyond it are not touched,
// a longer structure's unknown tail is ignored, and one without the magic number is refused.
Result<communicator::Config> parseConfig(const ncclConfig_t* given, communicator::Config defaults);

}  // namespace stretto::api
