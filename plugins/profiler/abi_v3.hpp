// Descriptors of versions 2 and 3 of NCCL's profiler interface (NCCL 2.24 to 2.26): numbers became text, and
// v3 brought kernel channels and network plugins. Plugins and their tests may include this.
#pragma once

#include "profiler/abi_v1.hpp"

namespace stretto::profiler {

struct P2pV2 {
  const char* name;
  uint64_t communicator;
  const char* function;
  void* buffer;
  const char* dataType;
  size_t count;
  int peer;
};
struct DescriptorV2 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t communicator;
      uint64_t sequence;
      const char* function;
      const void* sendBuffer;
      void* receiveBuffer;
      size_t count;
      int root;
      const char* dataType;
      size_t trafficBytes;
      uint8_t channels;
      uint8_t warps;
      const char* algorithm;
      const char* protocol;
    } coll;
    P2pV2 p2p;
    ProxyOpV2 proxyOp;
    ProxyStepV2 proxyStep;
  };
};
static_assert(sizeof(DescriptorV2) == 128);
static_assert(offsetof(DescriptorV2, coll.dataType) == 88 && offsetof(DescriptorV2, coll.trafficBytes) == 96);
static_assert(offsetof(DescriptorV2, coll.channels) == 104 && offsetof(DescriptorV2, coll.algorithm) == 112);
static_assert(offsetof(DescriptorV2, coll.protocol) == 120);

struct DescriptorV3 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t communicator;
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
    P2pV2 p2p;
    ProxyOpV2 proxyOp;
    ProxyStepV2 proxyStep;
    struct {
      uint8_t channel;
    } kernelCh;
    NetPluginV3 netPlugin;
  };
};
static_assert(sizeof(DescriptorV3) == 120);
static_assert(offsetof(DescriptorV3, coll.function) == 48 && offsetof(DescriptorV3, coll.sendBuffer) == 56);
static_assert(offsetof(DescriptorV3, coll.dataType) == 88 && offsetof(DescriptorV3, coll.channels) == 96);
static_assert(offsetof(DescriptorV3, coll.algorithm) == 104 && offsetof(DescriptorV3, coll.protocol) == 112);
static_assert(offsetof(DescriptorV3, p2p.function) == 40 && offsetof(DescriptorV3, p2p.buffer) == 48);
static_assert(offsetof(DescriptorV3, p2p.dataType) == 56 && offsetof(DescriptorV3, p2p.count) == 64);
static_assert(offsetof(DescriptorV3, p2p.peer) == 72 && offsetof(DescriptorV3, proxyOp.isSend) == 44);
static_assert(offsetof(DescriptorV3, kernelCh.channel) == 24);
static_assert(offsetof(DescriptorV3, netPlugin.id) == 24 && offsetof(DescriptorV3, netPlugin.data) == 32);

using TableV2 = Table<InitV1, DescriptorV2, ArgumentsV1>;
using TableV3 = Table<InitV1, DescriptorV3, ArgumentsV1>;

}  // namespace stretto::profiler
