// The types of NCCL's device API (nccl_device.h, 2.32.3) that its functions for the host name. Programs
// compile them in from NVIDIA's header, which is why this library has none of its own for users; tests/abi
// compares the two. For nccl_device.cpp.
#pragma once

#include "nccl.h"

extern "C" {

// Ranks `rank - k * stride`, ..., `rank + k * stride` of the communicator, where `rank` is the caller's
// number among the nRanks of them.
typedef struct ncclTeam {
  int nRanks, rank, stride;
} ncclTeam_t;

typedef uint32_t ncclCftLeId;
typedef struct ncclMultimemHandle {
  void* mcBasePtr;
} ncclMultimemHandle_t;

typedef enum {
  NCCL_GIN_CONNECTION_NONE,
  NCCL_GIN_CONNECTION_FULL,
  NCCL_GIN_CONNECTION_RAIL,
  NCCL_GIN_CONNECTION_CUSTOM_STRIDE
} ncclGinConnectionType_t;
typedef enum {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4,
  NCCL_GIN_TYPE_EFA_GDA = 5,
  NCCL_GIN_MAX_TYPES = 6
} ncclGinType_t;
typedef enum { NCCL_CFT_TEAM_FLAT, NCCL_CFT_TEAM_HIER_MULTIMEM, NCCL_CFT_TEAM_HIER_LSA } ncclCftTeamMode_t;

typedef struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
  uint64_t commHash;
  int ginMinStride;
  ncclGinConnectionType_t ginConnectionType;
  bool ginSupport[64];
  size_t devCommRuntimeVersionSize;
  bool cftSupport;
  bool cftMulticastSupport;
  bool cftCountedSupport;
} ncclCommProperties_t;

// Only pointers to these pass here.
struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclLLA2AHandle;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;

// Each function with its twin.
#define STRETTO_DEVICE_API(result, name, ...) \
  result name(__VA_ARGS__);                   \
  result p##name(__VA_ARGS__);

STRETTO_DEVICE_API(ncclResult_t, ncclCommQueryProperties, ncclComm_t comm, ncclCommProperties_t* props)
STRETTO_DEVICE_API(ncclResult_t, ncclDevCommCreate, ncclComm_t comm, const ncclDevCommRequirements* reqs,
                   ncclDevComm* made)
STRETTO_DEVICE_API(ncclResult_t, ncclDevCommDestroy, ncclComm_t comm, const ncclDevComm* made)

STRETTO_DEVICE_API(ncclResult_t, ncclGetLsaDevicePointer, ncclWindow_t window, size_t offset, int lsaRank,
                   void** outPtr)
STRETTO_DEVICE_API(ncclResult_t, ncclGetPeerDevicePointer, ncclWindow_t window, size_t offset, int peer,
                   void** outPtr)
STRETTO_DEVICE_API(ncclResult_t, ncclGetLsaMultimemDevicePointer, ncclWindow_t window, size_t offset,
                   void** outPtr)
STRETTO_DEVICE_API(ncclResult_t, ncclGetMultimemDevicePointer, ncclWindow_t window, size_t offset,
                   ncclMultimemHandle_t multimem, void** outPtr)
STRETTO_DEVICE_API(ncclResult_t, ncclGetMultimemDeviceLeInfo, ncclWindow_t window, size_t offset,
                   ncclCftLeId* leId, size_t* leOffset)
STRETTO_DEVICE_API(ncclResult_t, ncclGetCftDeviceLeInfo, ncclWindow_t window, size_t offset, int peerCft,
                   ncclTeam_t cftTeam, ncclCftLeId* leId, size_t* leOffset)
STRETTO_DEVICE_API(ncclResult_t, ncclGetPeerDeviceLeInfo, ncclWindow_t window, size_t offset, int peerWorld,
                   ncclCftLeId* leId, size_t* leOffset)

STRETTO_DEVICE_API(ncclTeam_t, ncclTeamWorld, ncclComm_t comm)
STRETTO_DEVICE_API(ncclTeam_t, ncclTeamLsa, ncclComm_t comm)
STRETTO_DEVICE_API(ncclTeam_t, ncclTeamRail, ncclComm_t comm)
STRETTO_DEVICE_API(ncclTeam_t, ncclTeamCft, ncclComm_t comm, ncclCftTeamMode_t mode)
STRETTO_DEVICE_API(ncclTeam_t, ncclTeamCftMultimem, ncclComm_t comm)
STRETTO_DEVICE_API(int, ncclTeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank)
STRETTO_DEVICE_API(int, ncclTeamRankToLsa, ncclComm_t comm, ncclTeam_t team, int rank)

STRETTO_DEVICE_API(ncclResult_t, ncclLsaBarrierCreateRequirement, ncclTeam_t team, int nBarriers,
                   ncclLsaBarrierHandle* handle, ncclDevResourceRequirements* requirements)
STRETTO_DEVICE_API(ncclResult_t, ncclGinBarrierCreateRequirement, ncclComm_t comm, ncclTeam_t team,
                   int nBarriers, ncclGinBarrierHandle* handle, ncclDevResourceRequirements* requirements)
STRETTO_DEVICE_API(int, ncclLLA2ACalcSlots, int maxElts, int maxEltSize)
STRETTO_DEVICE_API(ncclResult_t, ncclLLA2ACreateRequirement, int nBlocks, int nSlots, ncclLLA2AHandle* handle,
                   ncclDevResourceRequirements* requirements)
STRETTO_DEVICE_API(ncclResult_t, ncclGinOutboxCreateRequirement, int nBlocks, int sizeLog2,
                   ncclGinOutboxHandle* handle, ncclDevResourceRequirements* requirements)
STRETTO_DEVICE_API(ncclResult_t, ncclGinInboxA2ACreateRequirement, ncclTeam_t peers, int nBlocks,
                   int sizeLog2, ncclGinInboxA2AHandle* handle, ncclDevResourceRequirements* requirements)
#undef STRETTO_DEVICE_API

}  // extern "C"
