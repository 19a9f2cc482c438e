// NCCL's profiler plugin interface, for both its sides: the host (profiler_host, which calls versions 5, 6
// and 7) and our plugins (plugins/profiler, which export 1 to 7 and declare 1 to 4 for themselves). What all
// versions share, and the descriptors of 5 to 7 (NCCL 2.28 and later): each is a prefix of the next, so one
// struct serves; fields marked v6 or v7 may only be read where that version's table was called, because an
// older caller's descriptor ends before them. These declarations are our own, facts and no code, made from
// the interface's binary layout on x86-64 and aarch64; the static_asserts hold them to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/names.hpp"

namespace stretto::observe::profiler {

// NCCL's result codes, as far as anybody looks at them.
inline constexpr int kSuccess = 0;

// Levels and the subsystem of NCCL's logger.
enum class LogLevel : int { kWarn = 2, kInfo = 3 };
inline constexpr unsigned long kProfileSubsystem = 0x4000;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

// Bit numbers of the event types.
enum class Type : uint8_t {
  kGroup = 0,
  kColl,
  kP2p,
  kProxyOp,
  kProxyStep,
  kProxyCtrl,  // the last of v1 and v2
  kKernelCh,
  kNetPlugin,  // of v3 and v4
  kGroupApi,
  kCollApi,
  kP2pApi,
  kKernelLaunch,  // of v5
  kCeColl,
  kCeSync,
  kCeBatch,      // of v6
  kKernelPhase,  // of v7
  kUnknown = 255,
};
inline constexpr int kTypes = 16;
static_assert(hasValues<Type, kTypes>());

constexpr const char* nameOf(Type type) {
  constexpr const char* kNames[] = {
      "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
      "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl",    "CeSync",    "CeBatch",  "KernelPhase"};
  return static_cast<int>(type) < kTypes ? nameIn(kNames, type) : "unknown";
}

// Which types an interface version knows, as a mask.
constexpr uint32_t typesOf(int abi) {
  switch (abi) {
    case 1:
    case 2:
      return 0x3f;
    case 3:
    case 4:
      return 0xff;
    case 5:
      return 0xfff;
    case 6:
      return 0x7fff;
    default:
      return 0xffff;
  }
}

// Its bit in the activation mask; from v5 on also what a descriptor's `type` says.
constexpr uint32_t bit(Type type) {
  return 1u << static_cast<int>(type);
}

// What recordEventState is told, by number. The same in all versions; ProxyOp's are of v1 to v3, with the
// bytes moved and the steps done.
enum State : int {
  kProxyOpFirst = 0,
  kProxyOpLast = 7,
  kStepSendGpuWait = 8,
  kStepSendWait = 9,
  kStepRecvWait = 10,
  kStepRecvFlushWait = 11,
  kStepRecvGpuWait = 12,
  kCtrlIdle = 13,
  kCtrlActive = 14,
  kCtrlSleep = 15,
  kCtrlWakeup = 16,
  kCtrlAppend = 17,
  kCtrlAppendEnd = 18,
  kOpInProgress = 19,
  kStepSendPeerWait = 20,  // NCCL says it at every poll until the peer is ready
  kNetPluginUpdate = 21,
  kKernelChStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
  kKernelPhaseStop = 31,
  kReplayed = 1000,  // no state of NCCL's: see StampedTable
};

// The table that a plugin exports as ncclProfiler_vN: the same six words in every version.
template <typename Init, typename Descriptor, typename Arguments>
struct Table {
  const char* name;
  Init init;
  int (*start)(void* context, void** handle, Descriptor* descriptor);
  int (*stop)(void* handle);
  int (*state)(void* handle, int state, Arguments* arguments);
  int (*finalize)(void* context);
};

struct ProxyOpV2 {
  int pid;
  uint8_t channel;
  int peer;
  int steps;
  int chunkBytes;
  int isSend;
};
struct ProxyStepV2 {
  int step;
};
struct KernelChV4 {
  uint8_t channel;
  uint64_t gpuNs;
};
struct NetPluginV3 {
  int64_t id;
  void* data;
};

// States of v4 to v7.
union ArgumentsV4 {
  struct {
    size_t bytes;
  } proxyStep;
  struct {
    int appended;
  } proxyCtrl;
  struct {
    void* data;
  } netPlugin;
  struct {
    uint64_t gpuNs;
  } kernelCh;  // KernelPhaseStop uses it too
  struct {
    uint64_t number;
  } replayed;
};
static_assert(sizeof(ArgumentsV4) == 8);

struct CollV5 {
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
  const char* kernelVariant;  // v7; null where the kernel is not a symmetric one
  uint8_t isSymmetric;        // v7
  uint64_t userTag;           // v7
};
struct P2pV5 {
  const char* function;
  void* buffer;
  const char* dataType;
  size_t count;
  int peer;
  uint8_t channels;
  void* parentGroup;
  uint64_t userTag;  // v7
};
struct CollApiV5 {
  const char* function;
  size_t count;
  const char* dataType;
  int root;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;  // v7
};
struct P2pApiV5 {
  const char* function;
  size_t count;
  const char* dataType;
  void* stream;
  bool graphCaptured;
  uint64_t userTag;  // v7
};
struct CeCollV6 {
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
  uint32_t ceSequence;
  void* stream;
  uint64_t userTag;  // v7
};

struct DescriptorV7 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    struct {
      bool graphCaptured;
      int depth;  // of ncclGroupStart, the call's own implicit group included
    } groupApi;
    CollApiV5 collApi;
    P2pApiV5 p2pApi;
    struct {
      void* stream;
    } kernelLaunch;
    CollV5 coll;
    P2pV5 p2p;
    ProxyOpV2 proxyOp;
    ProxyStepV2 proxyStep;
    KernelChV4 kernelCh;
    NetPluginV3 netPlugin;
    CeCollV6 ceColl;
    struct {
      bool isComplete;
      int ranks;
    } ceSync;
    struct {
      int operations;
      size_t bytes;
      bool useIntraSync;
    } ceBatch;
    struct {
      uint8_t channel;
      uint8_t phase;
      const char* phaseName;
      uint64_t gpuNs;
    } kernelPhase;
  };
};
static_assert(sizeof(DescriptorV7) == 136);
static_assert(offsetof(DescriptorV7, parent) == 8 && offsetof(DescriptorV7, rank) == 16);
static_assert(offsetof(DescriptorV7, groupApi.graphCaptured) == 24 &&
              offsetof(DescriptorV7, groupApi.depth) == 28);
static_assert(offsetof(DescriptorV7, collApi.function) == 24 && offsetof(DescriptorV7, collApi.count) == 32);
static_assert(offsetof(DescriptorV7, collApi.dataType) == 40 && offsetof(DescriptorV7, collApi.root) == 48);
static_assert(offsetof(DescriptorV7, collApi.stream) == 56 &&
              offsetof(DescriptorV7, collApi.graphCaptured) == 64);
static_assert(offsetof(DescriptorV7, collApi.userTag) == 72);
static_assert(offsetof(DescriptorV7, p2pApi.stream) == 48 &&
              offsetof(DescriptorV7, p2pApi.graphCaptured) == 56);
static_assert(offsetof(DescriptorV7, p2pApi.userTag) == 64 &&
              offsetof(DescriptorV7, kernelLaunch.stream) == 24);
static_assert(offsetof(DescriptorV7, coll.channels) == 80 && offsetof(DescriptorV7, coll.algorithm) == 88);
static_assert(offsetof(DescriptorV7, coll.protocol) == 96 && offsetof(DescriptorV7, coll.parentGroup) == 104);
static_assert(offsetof(DescriptorV7, coll.kernelVariant) == 112 &&
              offsetof(DescriptorV7, coll.isSymmetric) == 120);
static_assert(offsetof(DescriptorV7, coll.userTag) == 128);
static_assert(offsetof(DescriptorV7, p2p.channels) == 60 && offsetof(DescriptorV7, p2p.parentGroup) == 64);
static_assert(offsetof(DescriptorV7, p2p.userTag) == 72);
static_assert(offsetof(DescriptorV7, ceColl.sequence) == 24 && offsetof(DescriptorV7, ceColl.function) == 32);
static_assert(offsetof(DescriptorV7, ceColl.sendBuffer) == 40 &&
              offsetof(DescriptorV7, ceColl.receiveBuffer) == 48);
static_assert(offsetof(DescriptorV7, ceColl.count) == 56 && offsetof(DescriptorV7, ceColl.root) == 64);
static_assert(offsetof(DescriptorV7, ceColl.dataType) == 72 &&
              offsetof(DescriptorV7, ceColl.syncStrategy) == 80);
static_assert(offsetof(DescriptorV7, ceColl.intraBatchSync) == 88 &&
              offsetof(DescriptorV7, ceColl.batchSize) == 92);
static_assert(offsetof(DescriptorV7, ceColl.batches) == 96 &&
              offsetof(DescriptorV7, ceColl.ceSequence) == 100);
static_assert(offsetof(DescriptorV7, ceColl.stream) == 104 && offsetof(DescriptorV7, ceColl.userTag) == 112);
static_assert(offsetof(DescriptorV7, proxyOp.pid) == 24 && offsetof(DescriptorV7, proxyOp.channel) == 28);
static_assert(offsetof(DescriptorV7, proxyOp.peer) == 32 && offsetof(DescriptorV7, proxyOp.steps) == 36);
static_assert(offsetof(DescriptorV7, proxyOp.chunkBytes) == 40 &&
              offsetof(DescriptorV7, proxyOp.isSend) == 44);
static_assert(offsetof(DescriptorV7, proxyStep.step) == 24);
static_assert(offsetof(DescriptorV7, kernelCh.channel) == 24 && offsetof(DescriptorV7, kernelCh.gpuNs) == 32);
static_assert(offsetof(DescriptorV7, netPlugin.id) == 24 && offsetof(DescriptorV7, netPlugin.data) == 32);
static_assert(offsetof(DescriptorV7, coll.sequence) == 24 && offsetof(DescriptorV7, coll.function) == 32);
static_assert(offsetof(DescriptorV7, coll.sendBuffer) == 40 &&
              offsetof(DescriptorV7, coll.receiveBuffer) == 48);
static_assert(offsetof(DescriptorV7, coll.count) == 56 && offsetof(DescriptorV7, coll.root) == 64);
static_assert(offsetof(DescriptorV7, coll.dataType) == 72 && offsetof(DescriptorV7, coll.warps) == 81);
static_assert(offsetof(DescriptorV7, p2p.function) == 24 && offsetof(DescriptorV7, p2p.buffer) == 32);
static_assert(offsetof(DescriptorV7, p2p.dataType) == 40 && offsetof(DescriptorV7, p2p.count) == 48);
static_assert(offsetof(DescriptorV7, p2p.peer) == 56);
static_assert(offsetof(DescriptorV7, p2pApi.function) == 24 && offsetof(DescriptorV7, p2pApi.count) == 32);
static_assert(offsetof(DescriptorV7, p2pApi.dataType) == 40);
static_assert(offsetof(DescriptorV7, ceSync.isComplete) == 24 && offsetof(DescriptorV7, ceSync.ranks) == 28);
static_assert(offsetof(DescriptorV7, ceBatch.operations) == 24 &&
              offsetof(DescriptorV7, ceBatch.bytes) == 32);
static_assert(offsetof(DescriptorV7, ceBatch.useIntraSync) == 40);
static_assert(offsetof(DescriptorV7, kernelPhase.channel) == 24 &&
              offsetof(DescriptorV7, kernelPhase.phase) == 25);
static_assert(offsetof(DescriptorV7, kernelPhase.phaseName) == 32 &&
              offsetof(DescriptorV7, kernelPhase.gpuNs) == 40);

// How many bytes of the descriptor a caller of that version hands over.
constexpr size_t bytesOfDescriptor(int abi) {
  return abi >= 7 ? sizeof(DescriptorV7) : 112;
}

using InitV5 = int (*)(void** context, uint64_t communicator, int* mask, const char* name, int nodes,
                       int ranks, int rank, Logger logger);
using TableV5 = Table<InitV5, DescriptorV7, ArgumentsV4>;
static_assert(sizeof(TableV5) == 48);

// What a plugin may export beside ncclProfiler_v7, as strettoProfiler_v2, to be called through instead: the
// same calls with the time at which they happened, by platform::ticks() of the calling thread, so that
// callbacks which follow each other at once share one reading of the clock, or use one that was made anyway;
// 0 stands for now. It is not later than the call, not earlier than the thread's call before, and what the
// thread has done since then is no more than make callbacks and hand the operation on: well under a
// microsecond. `sample` follows an init, once and before any event, where only every n-th operation of that
// context is told of, n > 1. A KernelCh of a graph's replay has the CollApi that was captured as its parent,
// which has stopped, and a state kReplayed: the number of that replay among the collectives of which the
// block was a part, from 1, equal on all ranks. NCCL knows nothing of this.
struct StampedTable {
  int (*start)(void* context, void** handle, DescriptorV7* descriptor, uint64_t ticks);
  int (*stop)(void* handle, uint64_t ticks);
  int (*state)(void* handle, int state, ArgumentsV4* arguments, uint64_t ticks);
  int (*sample)(void* context, uint64_t every);
};
inline constexpr const char* kStampedTable = "strettoProfiler_v2";

}  // namespace stretto::observe::profiler
