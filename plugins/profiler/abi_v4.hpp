// Descriptors of version 4 of NCCL's profiler interface (NCCL 2.27): what a communicator is comes with init,
// kernel channels bring the GPU's time. Plugins and their tests may include this.
#pragma once

#include "profiler/abi_v3.hpp"

namespace stretto::profiler {

struct DescriptorV4 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
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
    } coll;
    struct {
      const char* function;
      void* buffer;
      const char* dataType;
      size_t count;
      int peer;
      uint8_t channels;
    } p2p;
    ProxyOpV2 proxyOp;
    ProxyStepV2 proxyStep;
    KernelChV4 kernelCh;
    NetPluginV3 netPlugin;
  };
};
static_assert(sizeof(DescriptorV4) == 104);
static_assert(offsetof(DescriptorV4, coll.sequence) == 24 && offsetof(DescriptorV4, coll.function) == 32);
static_assert(offsetof(DescriptorV4, coll.count) == 56 && offsetof(DescriptorV4, coll.root) == 64);
static_assert(offsetof(DescriptorV4, coll.dataType) == 72 && offsetof(DescriptorV4, coll.channels) == 80);
static_assert(offsetof(DescriptorV4, coll.warps) == 81 && offsetof(DescriptorV4, coll.algorithm) == 88);
static_assert(offsetof(DescriptorV4, coll.protocol) == 96);
static_assert(offsetof(DescriptorV4, p2p.function) == 24 && offsetof(DescriptorV4, p2p.buffer) == 32);
static_assert(offsetof(DescriptorV4, p2p.dataType) == 40 && offsetof(DescriptorV4, p2p.count) == 48);
static_assert(offsetof(DescriptorV4, p2p.peer) == 56 && offsetof(DescriptorV4, p2p.channels) == 60);
static_assert(offsetof(DescriptorV4, kernelCh.channel) == 24 && offsetof(DescriptorV4, kernelCh.gpuNs) == 32);

using TableV4 = Table<InitV4, DescriptorV4, ArgumentsV4>;

}  // namespace stretto::profiler
