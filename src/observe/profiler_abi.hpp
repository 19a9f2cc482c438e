// NCCL's profiler plugin interface as a host sees it: versions 5, 6 and 7, in our own words. Each version's
// descriptor begins with the one before it, so that the newest can be handed to a plugin of any of the three;
// what a plugin's symbol is called says how much of it the plugin reads. Facts only, no code; the layouts are
// those of the x86-64 and aarch64 ABIs and are checked below. For the host (observe/profiler_*), for plugins/
// and for tests.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace stretto::observe::profiler {

// What ncclResult_t is on the wire: 0 for success.
using Outcome = int;

// Bits of the activation mask, and the kinds of events that descriptors name.
namespace kind {
inline constexpr uint64_t kGroup = 1 << 0;
inline constexpr uint64_t kCollective = 1 << 1;
inline constexpr uint64_t kP2p = 1 << 2;
inline constexpr uint64_t kProxyOp = 1 << 3;
inline constexpr uint64_t kProxyStep = 1 << 4;
inline constexpr uint64_t kProxyControl = 1 << 5;
inline constexpr uint64_t kKernelChannel = 1 << 6;
inline constexpr uint64_t kNetPlugin = 1 << 7;
inline constexpr uint64_t kGroupApi = 1 << 8;
inline constexpr uint64_t kCollectiveApi = 1 << 9;
inline constexpr uint64_t kP2pApi = 1 << 10;
inline constexpr uint64_t kKernelLaunch = 1 << 11;
// From here on never emitted by us: copy engines (version 6), phases of kernels (version 7).
inline constexpr uint64_t kCopyEngineCollective = 1 << 12;
inline constexpr uint64_t kCopyEngineSync = 1 << 13;
inline constexpr uint64_t kCopyEngineBatch = 1 << 14;
inline constexpr uint64_t kKernelPhase = 1 << 15;
}  // namespace kind

// The second argument of recordEventState. The values are the same in all versions.
enum State : int {
  kStepSendGpuWait = 8,
  kStepSendWait = 9,
  kStepReceiveWait = 10,
  kStepReceiveFlushWait = 11,
  kStepReceiveGpuWait = 12,
  kControlIdle = 13,
  kControlActive = 14,
  kControlSleep = 15,
  kControlWakeup = 16,
  kControlAppend = 17,
  kControlAppendEnd = 18,
  kOpInProgress = 19,
  kStepSendPeerWait = 20,
  kNetPluginUpdate = 21,
  kKernelChannelStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
  kKernelPhaseStop = 31,
};

struct GroupApi {
  bool graphCaptured;
  int groupDepth;  // of ncclGroupStart, the call's own implicit group included
};
struct CollectiveApi {
  const char* function;
  size_t count;
  const char* dataType;
  int root;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;  // version 7
};
struct P2pApi {
  const char* function;
  size_t count;
  const char* dataType;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;  // version 7
};
struct KernelLaunch {
  void* stream;
};
struct CollectiveEvent {
  uint64_t sequence;  // per communicator and function
  const char* function;
  const void* sendBuffer;
  void* receiveBuffer;
  size_t count;
  int root;
  const char* dataType;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
  void* parentGroup;
  const char* kernelVariant;  // version 7
  bool isSymmetric;           // version 7
  uint64_t userTag;           // version 7
};
struct P2pEvent {
  const char* function;
  void* buffer;
  const char* dataType;
  size_t count;
  int peer;
  uint8_t channels;
  void* parentGroup;
  uint64_t userTag;  // version 7
};
struct ProxyOp {
  pid_t pid;
  uint8_t channel;
  int peer;
  int steps;
  int chunkBytes;
  int isSend;
};
struct ProxyStep {
  int step;
};
struct KernelChannel {
  uint8_t channel;
  uint64_t timer;  // when the channel began, by the clock of who runs it
};
struct NetPlugin {
  int64_t id;
  void* data;
};
struct KernelPhase {  // version 7
  uint8_t channel;
  uint8_t phase;
  const char* phaseName;
  uint64_t timer;
};
struct CopyEngineCollective {  // version 6; userTag version 7
  uint64_t sequence;
  const char* function;
  const void* sendBuffer;
  void* receiveBuffer;
  size_t count;
  int root;
  const char* dataType;
  const char* syncStrategy;
  bool intraBatchSync;
  uint32_t batchSize;
  uint32_t batches;
  uint32_t copyEngineSequence;
  void* stream;
  uint64_t userTag;
};

// What startEvent is given. The union begins at byte 24 in every version.
struct Descriptor {
  uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApi groupApi;
    CollectiveApi collectiveApi;
    P2pApi p2pApi;
    KernelLaunch kernelLaunch;
    CollectiveEvent collective;
    P2pEvent p2p;
    ProxyOp proxyOp;
    ProxyStep proxyStep;
    KernelChannel kernelChannel;
    NetPlugin netPlugin;
    KernelPhase kernelPhase;
    CopyEngineCollective copyEngine;
  };
};

// What recordEventState is given beside the state; null where the state needs nothing.
union StateArguments {
  struct {
    size_t transferred;
  } proxyStep;
  struct {
    int appended;
  } proxyControl;
  struct {
    void* data;
  } netPlugin;
  struct {
    uint64_t timer;
  } kernelChannel;
};

// NCCL's debug function: level (VERSION 1, WARN 2, INFO 3, TRACE 5), subsystems, file, line, format.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line, const char* format,
                        ...);

// The symbol ncclProfiler_v5, _v6 or _v7.
struct Table {
  const char* name;
  Outcome (*init)(void** context, uint64_t communicator, int* activationMask, const char* communicatorName,
                  int nodes, int ranks, int rank, Logger logger);
  Outcome (*startEvent)(void* context, void** handle, Descriptor* descriptor);
  Outcome (*stopEvent)(void* handle);
  Outcome (*recordEventState)(void* handle, int state, StateArguments* arguments);
  Outcome (*finalize)(void* context);
};

static_assert(sizeof(Table) == 48 && sizeof(StateArguments) == 8);
static_assert(sizeof(Descriptor) == 136 && offsetof(Descriptor, parent) == 8 &&
              offsetof(Descriptor, rank) == 16 && offsetof(Descriptor, groupApi) == 24);
static_assert(offsetof(Descriptor, groupApi.groupDepth) == 28);
static_assert(offsetof(Descriptor, collectiveApi.function) == 24 &&
              offsetof(Descriptor, collectiveApi.count) == 32 &&
              offsetof(Descriptor, collectiveApi.dataType) == 40 &&
              offsetof(Descriptor, collectiveApi.root) == 48 &&
              offsetof(Descriptor, collectiveApi.stream) == 56 &&
              offsetof(Descriptor, collectiveApi.graphCaptured) == 64 &&
              offsetof(Descriptor, collectiveApi.userTag) == 72);
static_assert(offsetof(Descriptor, p2pApi.count) == 32 && offsetof(Descriptor, p2pApi.dataType) == 40 &&
              offsetof(Descriptor, p2pApi.stream) == 48 && offsetof(Descriptor, p2pApi.graphCaptured) == 56 &&
              offsetof(Descriptor, p2pApi.userTag) == 64);
static_assert(offsetof(Descriptor, kernelLaunch.stream) == 24);
static_assert(
    offsetof(Descriptor, collective.sequence) == 24 && offsetof(Descriptor, collective.function) == 32 &&
    offsetof(Descriptor, collective.sendBuffer) == 40 &&
    offsetof(Descriptor, collective.receiveBuffer) == 48 && offsetof(Descriptor, collective.count) == 56 &&
    offsetof(Descriptor, collective.root) == 64 && offsetof(Descriptor, collective.dataType) == 72 &&
    offsetof(Descriptor, collective.channels) == 80 && offsetof(Descriptor, collective.warps) == 81 &&
    offsetof(Descriptor, collective.algorithm) == 88 && offsetof(Descriptor, collective.protocol) == 96 &&
    offsetof(Descriptor, collective.parentGroup) == 104 &&
    offsetof(Descriptor, collective.kernelVariant) == 112 &&
    offsetof(Descriptor, collective.isSymmetric) == 120 && offsetof(Descriptor, collective.userTag) == 128);
static_assert(offsetof(Descriptor, p2p.function) == 24 && offsetof(Descriptor, p2p.buffer) == 32 &&
              offsetof(Descriptor, p2p.dataType) == 40 && offsetof(Descriptor, p2p.count) == 48 &&
              offsetof(Descriptor, p2p.peer) == 56 && offsetof(Descriptor, p2p.channels) == 60 &&
              offsetof(Descriptor, p2p.parentGroup) == 64 && offsetof(Descriptor, p2p.userTag) == 72);
static_assert(offsetof(Descriptor, proxyOp.pid) == 24 && offsetof(Descriptor, proxyOp.channel) == 28 &&
              offsetof(Descriptor, proxyOp.peer) == 32 && offsetof(Descriptor, proxyOp.steps) == 36 &&
              offsetof(Descriptor, proxyOp.chunkBytes) == 40 && offsetof(Descriptor, proxyOp.isSend) == 44);
static_assert(offsetof(Descriptor, proxyStep.step) == 24);
static_assert(offsetof(Descriptor, kernelChannel.channel) == 24 &&
              offsetof(Descriptor, kernelChannel.timer) == 32);
static_assert(offsetof(Descriptor, kernelPhase.phase) == 25 &&
              offsetof(Descriptor, kernelPhase.phaseName) == 32 &&
              offsetof(Descriptor, kernelPhase.timer) == 40);
static_assert(offsetof(Descriptor, copyEngine.syncStrategy) == 80 &&
              offsetof(Descriptor, copyEngine.copyEngineSequence) == 100 &&
              offsetof(Descriptor, copyEngine.stream) == 104 &&
              offsetof(Descriptor, copyEngine.userTag) == 112);

}  // namespace stretto::observe::profiler
