// Descriptors of versions 5 to 7 of NCCL's profiler interface (NCCL 2.28 and later). Each is a prefix of the
// next, so one struct serves: fields marked v6 or v7 may only be read where that version's table was called,
// because an older caller's descriptor ends before them. Plugins and their tests may include this.
#pragma once

#include "profiler/abi_v4.hpp"

namespace stretto::profiler {

struct CollV5 {
  uint64_t sequence;
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
      int depth;
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
    struct {
      uint8_t channel;
      uint64_t gpuNs;
    } kernelCh;
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

using TableV5 = Table<InitV5, DescriptorV7, ArgumentsV4>;

}  // namespace stretto::profiler
