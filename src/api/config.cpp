#include "api/config.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>

#include "base/parameters.hpp"
#include "communicator/handover/foreign.hpp"

namespace stretto::api {
namespace {

constexpr unsigned kMagic = NCCL_API_MAGIC;
constexpr int kMostConnections = 64;  // as many channels as NCCL has
constexpr const char* kStructure = "ncclConfig_t";
constexpr int kMostRmaContexts = 16;
constexpr int kMostRmaSignals = 64;

// Members that came after 2.28.
Status checkNewerMembers(const ncclConfig_t& config) {
  STRETTO_TRY(checkMember(kStructure, "graphUsageMode", config.graphUsageMode, 0, 2));
  STRETTO_TRY(checkMember(kStructure, "numRmaCtx", config.numRmaCtx, 1, kMostRmaContexts));
  STRETTO_TRY(checkMember(kStructure, "maxP2pPeers", config.maxP2pPeers, 1, INT_MAX));
  STRETTO_TRY(checkMember(kStructure, "graphStreamOrdering", config.graphStreamOrdering, 0, 1));
  STRETTO_TRY(checkMember(kStructure, "launchOrderImplicit", config.launchOrderImplicit, 0, 1));
  STRETTO_TRY(checkMember(kStructure, "numRmaSig", config.numRmaSig, 1, kMostRmaSignals));
  STRETTO_TRY(checkMember(kStructure, "rmaEagerInit", config.rmaEagerInit, 0, 1));
  STRETTO_TRY(
      checkMember(kStructure, "hostCftMode", config.hostCftMode, ncclHostCftEnable, ncclHostCftFallback));
  if (config.nvlsHostMode == ncclNvlsHostModeDisable) return kOkStatus;
  constexpr int kAllNvls = ncclNvlsHostModeDisableTransport | ncclNvlsHostModeDisableSymmetricMultimem;
  return checkMember(kStructure, "nvlsHostMode", config.nvlsHostMode, ncclNvlsHostModeEnable, kAllNvls);
}

// Any class of traffic is the network's to judge.
Status checkMembers(const ncclConfig_t& config) {
  STRETTO_TRY(checkCommonMembers(kStructure, config));
  STRETTO_TRY(checkMember(kStructure, "blocking", config.blocking, 0, 1));
  STRETTO_TRY(checkMember(kStructure, "splitShare", config.splitShare, 0, 1));
  STRETTO_TRY(checkMember(kStructure, "collnetEnable", config.collnetEnable, 0, 1));
  STRETTO_TRY(checkMember(kStructure, "shrinkShare", config.shrinkShare, 0, 1));
  STRETTO_TRY(
      checkMember(kStructure, "nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, kMostConnections));
  STRETTO_TRY(checkMember(kStructure, "nvlinkCentricSched", config.nvlinkCentricSched, 0, 1));
  return checkNewerMembers(config);
}

// How many bytes of a config are members of the release that the caller was built against. A struct with an
// odd number of ints ends with padding, whose bytes can have any value; where a later release has a member in
// that place, the size is the same and only the version tells.
size_t lengthOf(const ncclConfig_t& given) {
  constexpr struct {
    unsigned since;
    size_t begin;
  } kInPadding[] = {{NCCL_VERSION(2, 17, 0), offsetof(ncclConfig_t, cgaClusterSize)},
                    {NCCL_VERSION(2, 26, 0), offsetof(ncclConfig_t, trafficClass)},
                    {NCCL_VERSION(2, 30, 5), offsetof(ncclConfig_t, graphStreamOrdering)}};
  for (const auto& member : kInPadding) {
    if (given.version < member.since) return std::min(given.size, member.begin);
  }
  return std::min(given.size, sizeof given);
}

}  // namespace

Status checkMember(const char* of, const char* name, int value, int low, int high) {
  if (value == NCCL_CONFIG_UNDEF_INT || (value >= low && value <= high)) return kOkStatus;
  return fail(Code::kInvalidArgument, "%s: %s is %d; it can be %d to %d, or undefined", of, name, value, low,
              high);
}

Result<communicator::Config> parseConfig(const ncclConfig_t* given, communicator::Config defaults) {
  if (parameters::kMaxCtas.isSet()) {
    const auto most = parameters::kMaxCtas.integer(1, kMostCtas);
    if (!most.ok()) return most.status();
    defaults.mostBlocks = static_cast<int>(most.value());
  }
  if (given == nullptr) return defaults;
  constexpr size_t kShortest = offsetof(ncclConfig_t, blocking);
  if (given->size < kShortest || given->magic != kMagic) {
    return fail(Code::kInvalidArgument,
                "ncclConfig_t: size %zu, magic %#x; start from NCCL_CONFIG_INITIALIZER (magic %#x)",
                given->size, given->size < kShortest ? 0 : given->magic, kMagic);
  }
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&known, given, lengthOf(*given));
  STRETTO_TRY(checkMembers(known));
  auto words = std::make_shared<communicator::ForeignConfig>();
  words->values = known;
  words->values.size = std::min(given->size, sizeof known);
  if (known.netName != nullptr) words->network = known.netName;
  if (known.commName != nullptr) words->name = known.commName;
  defaults.given = std::move(words);
  if (known.maxCTAs != NCCL_CONFIG_UNDEF_INT && !parameters::kMaxCtas.isSet())
    defaults.mostBlocks = known.maxCTAs;
  if (known.blocking != NCCL_CONFIG_UNDEF_INT) defaults.blocking = known.blocking != 0;
  if (known.commName != nullptr) defaults.name = known.commName;
  return defaults;
}

}  // namespace stretto::api
