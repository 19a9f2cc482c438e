// The functions for the host of NCCL's device API (nccl_device.h). Programs link against them whether they
// use them or not: PyTorch does not load without some of them. What only says who and where the ranks are is
// answered. What would be read by the caller's own kernels in NCCL's private layout, and multicast, refuse in
// words: there is nothing of that kind here that could be handed out.
#include "api/nccl_device.hpp"

#include <algorithm>
#include <cstring>

#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "api/windows.hpp"

namespace stretto::api {
namespace {

ncclResult_t refuse(const char* function) {
  return finish(fail(
      Code::kInvalidUsage,
      "%s: this library has no device API, because its objects are laid out for NCCL's own kernels; use the "
      "collectives of nccl.h, which are fast without registered memory, or NVIDIA's library",
      function));
}

ncclResult_t refuseMulticast(const char* function) {
  return finish(fail(Code::kInvalidUsage,
                     "%s: windows of this library have no multicast address: write to each peer's own",
                     function));
}

// Before that nobody knows where the other ranks are.
bool isConnected(communicator::Communicator& communicator) {
  return communicator.health().state() != communicator::State::kInitialising;
}

// Ranks of one host reach each other's memory. All teams are as large as that, and of consecutive ranks.
int teamSize(communicator::Communicator& communicator) {
  const int size = communicator.windows().largestTeam();
  return size > 0 ? size : communicator.self().ranks();
}

Status describe(communicator::Communicator& communicator, ncclCommProperties_t& known) {
  if (!communicator.self().seated() || !isConnected(communicator)) return Status{Code::kInProgress};
  known.rank = communicator.self().rank();
  known.nRanks = communicator.self().ranks();
  known.cudaDev = known.nvmlDev = std::max(0, communicator.self().config().device);
  known.ginType = known.railedGinType = NCCL_GIN_TYPE_NONE;
  known.ginConnectionType = NCCL_GIN_CONNECTION_NONE;
  const bool own = communicator.foreign() == nullptr;
  known.nLsaTeams = own ? known.nRanks / teamSize(communicator) : 0;  // of NCCL's it is not known
  known.hostRmaSupport = own && communicator.windows().areOfOneHost();
  known.commHash = communicator.self().number();
  return kOkStatus;
}

constexpr ncclTeam_t kNoTeam = {0, -1, 0};

bool isSeated(communicator::Communicator* communicator) {
  return communicator != nullptr && communicator->self().seated() && isConnected(*communicator);
}

ncclTeam_t everybody(const char* function, ncclComm_t comm) {
  const InUse communicator(comm, function);
  if (!isSeated(communicator)) return kNoTeam;
  return {communicator->self().ranks(), communicator->self().rank(), 1};
}

ncclTeam_t near(const char* function, ncclComm_t comm) {
  const InUse communicator(comm, function);
  if (!isSeated(communicator)) return kNoTeam;
  const int size = teamSize(*communicator);
  return {size, communicator->self().rank() % size, 1};
}

// The ranks with this one's place in all near teams.
ncclTeam_t rail(const char* function, ncclComm_t comm) {
  const InUse communicator(comm, function);
  if (!isSeated(communicator)) return kNoTeam;
  const int size = teamSize(*communicator);
  return {communicator->self().ranks() / size, communicator->self().rank() / size, size};
}

ncclTeam_t alone(const char* function, ncclComm_t comm) {
  const ncclTeam_t all = everybody(function, comm);
  return all.nRanks == 0 ? all : ncclTeam_t{1, 0, all.nRanks};
}

// In this rank's address space.
Status pointerOf(const char* function, ncclWindow_t window, size_t offset, int peer, void** out) {
  if (out == nullptr) return fail(Code::kInvalidArgument, "%s: no place for the answer", function);
  *out = nullptr;
  return addressInWindow(function, window, {peer, offset}, out);
}

int rankInWorld(const ncclTeam_t& world, const ncclTeam_t& team, int rank) {
  return world.rank + (rank - team.rank) * team.stride;
}

}  // namespace
}  // namespace stretto::api

using stretto::Code;
using stretto::Status;
using namespace stretto::api;

STRETTO_API(ncclCommQueryProperties)
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* props) try {
  STRETTO_PASS_ON(ncclCommQueryProperties, comm, (comm, props));
  const InUse communicator(comm, "ncclCommQueryProperties");
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  constexpr size_t kShortest = offsetof(ncclCommProperties_t, rank);
  if (props == nullptr || props->size < kShortest || props->magic != NCCL_API_MAGIC) {
    return finish(stretto::fail(
        Code::kInvalidArgument,
        "ncclCommQueryProperties: start from NCCL_COMM_PROPERTIES_INITIALIZER (magic %#x)", NCCL_API_MAGIC));
  }
  ncclCommProperties_t known{};
  known.size = props->size;
  known.magic = props->magic;
  known.version = props->version;
  if (const Status status = describe(*communicator, known); !status.ok()) return finish(status);
  std::memcpy(props, &known, std::min(props->size, sizeof known));
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclCommQueryProperties");
}

STRETTO_API(ncclTeamWorld)
ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  STRETTO_PASS_ON(ncclTeamWorld, comm, (comm));
  return everybody("ncclTeamWorld", comm);
}

STRETTO_API(ncclTeamLsa)
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  STRETTO_PASS_ON(ncclTeamLsa, comm, (comm));
  return near("ncclTeamLsa", comm);
}

STRETTO_API(ncclTeamRail)
ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  STRETTO_PASS_ON(ncclTeamRail, comm, (comm));
  return rail("ncclTeamRail", comm);
}

STRETTO_API(ncclTeamCft)
ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode) {
  STRETTO_PASS_ON(ncclTeamCft, comm, (comm, mode));
  return alone("ncclTeamCft", comm);
}

STRETTO_API(ncclTeamCftMultimem)
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm) {
  STRETTO_PASS_ON(ncclTeamCftMultimem, comm, (comm));
  return alone("ncclTeamCftMultimem", comm);
}

STRETTO_API(ncclTeamRankToWorld)
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  STRETTO_PASS_ON(ncclTeamRankToWorld, comm, (comm, team, rank));
  return rankInWorld(everybody("ncclTeamRankToWorld", comm), team, rank);
}

STRETTO_API(ncclTeamRankToLsa)
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  STRETTO_PASS_ON(ncclTeamRankToLsa, comm, (comm, team, rank));
  const ncclTeam_t world = everybody("ncclTeamRankToLsa", comm), own = near("ncclTeamRankToLsa", comm);
  return rankInWorld(world, team, rank) - (world.rank - own.rank);
}

// A size in NCCL's private layout: none, since there are no objects for it.
STRETTO_API(ncclLLA2ACalcSlots)
int ncclLLA2ACalcSlots(int count, int size) {
  STRETTO_PASS_ON_CALLER(ncclLLA2ACalcSlots, (count, size));
  return 0;
}

STRETTO_API(ncclGetPeerDevicePointer)
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr) try {
  STRETTO_PASS_ON(ncclGetPeerDevicePointer, window, (window, offset, peer, outPtr));
  return finish(pointerOf("ncclGetPeerDevicePointer", window, offset, peer, outPtr));
} catch (...) {
  return stretto::api::caught("ncclGetPeerDevicePointer");
}

STRETTO_API(ncclGetLsaDevicePointer)
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr) try {
  STRETTO_PASS_ON(ncclGetLsaDevicePointer, window, (window, offset, lsaRank, outPtr));
  return finish(pointerOf("ncclGetLsaDevicePointer", window, offset, lsaRank, outPtr));
} catch (...) {
  return stretto::api::caught("ncclGetLsaDevicePointer");
}

STRETTO_API(ncclDevCommCreate)
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* requirements,
                               ncclDevComm* made) try {
  STRETTO_PASS_ON(ncclDevCommCreate, comm, (comm, requirements, made));
  return refuse("ncclDevCommCreate");
} catch (...) {
  return stretto::api::caught("ncclDevCommCreate");
}

STRETTO_API(ncclDevCommDestroy)
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* made) try {
  STRETTO_PASS_ON(ncclDevCommDestroy, comm, (comm, made));
  return refuse("ncclDevCommDestroy");
} catch (...) {
  return stretto::api::caught("ncclDevCommDestroy");
}

STRETTO_API(ncclLsaBarrierCreateRequirement)
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int count, ncclLsaBarrierHandle* handle,
                                             ncclDevResourceRequirements* requirements) try {
  STRETTO_PASS_ON_CALLER(ncclLsaBarrierCreateRequirement, (team, count, handle, requirements));
  return refuse("ncclLsaBarrierCreateRequirement");
} catch (...) {
  return stretto::api::caught("ncclLsaBarrierCreateRequirement");
}

STRETTO_API(ncclGinBarrierCreateRequirement)
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int count,
                                             ncclGinBarrierHandle* handle,
                                             ncclDevResourceRequirements* requirements) try {
  STRETTO_PASS_ON(ncclGinBarrierCreateRequirement, comm, (comm, team, count, handle, requirements));
  return refuse("ncclGinBarrierCreateRequirement");
} catch (...) {
  return stretto::api::caught("ncclGinBarrierCreateRequirement");
}

STRETTO_API(ncclLLA2ACreateRequirement)
ncclResult_t ncclLLA2ACreateRequirement(int count, int size, ncclLLA2AHandle* handle,
                                        ncclDevResourceRequirements* requirements) try {
  STRETTO_PASS_ON_CALLER(ncclLLA2ACreateRequirement, (count, size, handle, requirements));
  return refuse("ncclLLA2ACreateRequirement");
} catch (...) {
  return stretto::api::caught("ncclLLA2ACreateRequirement");
}

STRETTO_API(ncclGinOutboxCreateRequirement)
ncclResult_t ncclGinOutboxCreateRequirement(int count, int size, ncclGinOutboxHandle* handle,
                                            ncclDevResourceRequirements* requirements) try {
  STRETTO_PASS_ON_CALLER(ncclGinOutboxCreateRequirement, (count, size, handle, requirements));
  return refuse("ncclGinOutboxCreateRequirement");
} catch (...) {
  return stretto::api::caught("ncclGinOutboxCreateRequirement");
}

STRETTO_API(ncclGinInboxA2ACreateRequirement)
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t team, int count, int size,
                                              ncclGinInboxA2AHandle* handle,
                                              ncclDevResourceRequirements* requirements) try {
  STRETTO_PASS_ON_CALLER(ncclGinInboxA2ACreateRequirement, (team, count, size, handle, requirements));
  return refuse("ncclGinInboxA2ACreateRequirement");
} catch (...) {
  return stretto::api::caught("ncclGinInboxA2ACreateRequirement");
}

STRETTO_API(ncclGetLsaMultimemDevicePointer)
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** out) try {
  STRETTO_PASS_ON(ncclGetLsaMultimemDevicePointer, window, (window, offset, out));
  return refuseMulticast("ncclGetLsaMultimemDevicePointer");
} catch (...) {
  return stretto::api::caught("ncclGetLsaMultimemDevicePointer");
}

STRETTO_API(ncclGetMultimemDevicePointer)
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem,
                                          void** out) try {
  STRETTO_PASS_ON(ncclGetMultimemDevicePointer, window, (window, offset, multimem, out));
  return refuseMulticast("ncclGetMultimemDevicePointer");
} catch (...) {
  return stretto::api::caught("ncclGetMultimemDevicePointer");
}

STRETTO_API(ncclGetMultimemDeviceLeInfo)
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId* id,
                                         size_t* offsetInIt) try {
  STRETTO_PASS_ON(ncclGetMultimemDeviceLeInfo, window, (window, offset, id, offsetInIt));
  return refuseMulticast("ncclGetMultimemDeviceLeInfo");
} catch (...) {
  return stretto::api::caught("ncclGetMultimemDeviceLeInfo");
}

STRETTO_API(ncclGetCftDeviceLeInfo)
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peer, ncclTeam_t team,
                                    ncclCftLeId* id, size_t* offsetInIt) try {
  STRETTO_PASS_ON(ncclGetCftDeviceLeInfo, window, (window, offset, peer, team, id, offsetInIt));
  return refuse("ncclGetCftDeviceLeInfo");
} catch (...) {
  return stretto::api::caught("ncclGetCftDeviceLeInfo");
}

STRETTO_API(ncclGetPeerDeviceLeInfo)
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peer, ncclCftLeId* id,
                                     size_t* offsetInIt) try {
  STRETTO_PASS_ON(ncclGetPeerDeviceLeInfo, window, (window, offset, peer, id, offsetInIt));
  return refuse("ncclGetPeerDeviceLeInfo");
} catch (...) {
  return stretto::api::caught("ncclGetPeerDeviceLeInfo");
}
