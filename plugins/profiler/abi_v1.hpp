// Descriptors of version 1 of NCCL's profiler interface (NCCL 2.23), where functions, types and algorithms
// are numbers. v1 to v3 share their state arguments. Plugins and their tests may include this.
#pragma once

#include "profiler/abi.hpp"

namespace stretto::profiler {

// States of v1 to v3.
union ArgumentsV1 {
  struct {
    size_t bytes;
    int steps;
  } proxyOp;
  struct {
    int appended;
  } proxyCtrl;
};
static_assert(sizeof(ArgumentsV1) == 16);

struct DescriptorV1 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t communicator;
      uint64_t sequence;
      uint8_t function;
      const void* sendBuffer;
      void* receiveBuffer;
      size_t count;
      int root;
      uint8_t dataType;
      uint32_t op;
      size_t trafficBytes;
      uint8_t channels;
      uint8_t warps;
      uint8_t algorithm;
      uint8_t protocol;
      int isCollnet;
      int isNvls;
    } coll;
    struct {
      const char* name;
      uint64_t communicator;
      uint8_t function;
      void* buffer;
      uint8_t dataType;
      size_t count;
      int peer;
    } p2p;
    struct {
      int pid;
      uint8_t channel;
      int peer;
      int steps;
      int chunkBytes;
      int isSend;
    } proxyOp;
    struct {
      int step;
    } proxyStep;
  };
};
static_assert(sizeof(DescriptorV1) == 120);
static_assert(offsetof(DescriptorV1, parent) == 8 && offsetof(DescriptorV1, rank) == 16);
static_assert(offsetof(DescriptorV1, coll.name) == 24 && offsetof(DescriptorV1, coll.communicator) == 32);
static_assert(offsetof(DescriptorV1, coll.sequence) == 40 && offsetof(DescriptorV1, coll.function) == 48);
static_assert(offsetof(DescriptorV1, coll.sendBuffer) == 56 &&
              offsetof(DescriptorV1, coll.receiveBuffer) == 64);
static_assert(offsetof(DescriptorV1, coll.count) == 72 && offsetof(DescriptorV1, coll.root) == 80);
static_assert(offsetof(DescriptorV1, coll.dataType) == 84 && offsetof(DescriptorV1, coll.op) == 88);
static_assert(offsetof(DescriptorV1, coll.trafficBytes) == 96 &&
              offsetof(DescriptorV1, coll.channels) == 104);
static_assert(offsetof(DescriptorV1, coll.warps) == 105 && offsetof(DescriptorV1, coll.algorithm) == 106);
static_assert(offsetof(DescriptorV1, coll.protocol) == 107 && offsetof(DescriptorV1, coll.isCollnet) == 108);
static_assert(offsetof(DescriptorV1, coll.isNvls) == 112);
static_assert(offsetof(DescriptorV1, p2p.name) == 24 && offsetof(DescriptorV1, p2p.communicator) == 32);
static_assert(offsetof(DescriptorV1, p2p.function) == 40 && offsetof(DescriptorV1, p2p.buffer) == 48);
static_assert(offsetof(DescriptorV1, p2p.dataType) == 56 && offsetof(DescriptorV1, p2p.count) == 64);
static_assert(offsetof(DescriptorV1, p2p.peer) == 72);
static_assert(offsetof(DescriptorV1, proxyOp.pid) == 24 && offsetof(DescriptorV1, proxyOp.channel) == 28);
static_assert(offsetof(DescriptorV1, proxyOp.peer) == 32 && offsetof(DescriptorV1, proxyOp.steps) == 36);
static_assert(offsetof(DescriptorV1, proxyOp.chunkBytes) == 40 &&
              offsetof(DescriptorV1, proxyOp.isSend) == 44);
static_assert(offsetof(DescriptorV1, proxyStep.step) == 24);

using TableV1 = Table<InitV1, DescriptorV1, ArgumentsV1>;
static_assert(sizeof(TableV1) == 48);

}  // namespace stretto::profiler
