// NCCL's net plugin interface, versions 6 to 12, for both its sides: the adapter that calls other people's
// plugins (net/plugin) and the plugin that we give to NCCL (plugins/net). These declarations are our own,
// facts and no code, made from the interface's binary layout on x86-64 and aarch64; the static_asserts and
// tests/net/abi_test.cpp hold them to it. What versions share is written once: a table is a row of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto::net::abi {

// NCCL's results.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

inline constexpr int kPointerHost = 1;
inline constexpr int kPointerCuda = 2;
inline constexpr int kPointerDmabuf = 4;
inline constexpr int kDeviceTypeHost = 0;
inline constexpr int kHandleBytes = 128;
inline constexpr int kMostRequestsOfV6 = 8;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using ProfilerCallback = int (*)(void** handle, int type, void* profilerHandle, int64_t pluginId, void* data);

// Properties, in the order of the versions. Megabits a second; microseconds.
struct PropertiesV6 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int pointers;
  int speed;
  int port;
  float latency;
  int mostConnections;
  int mostGrouped;
};
struct PropertiesV7 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int pointers;
  int speed;
  int port;
  float latency;
  int mostConnections;
  int mostGrouped;
  int deviceType;
  int deviceVersion;
};
struct PropertiesV8 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int pointers;
  int registersGlobally;
  int speed;
  int port;
  float latency;
  int mostConnections;
  int mostGrouped;
  int deviceType;
  int deviceVersion;
};
template <int kDevices>
struct VirtualDevice {
  int count;
  int devices[kDevices];
};
// The beginning of versions 9 to 12.
template <int kDevices>
struct PropertiesOf {
  char* name;
  char* pciPath;
  uint64_t guid;
  int pointers;
  int registersGlobally;
  int forcesFlush;
  int speed;
  int port;
  float latency;
  int mostConnections;
  int mostGrouped;
  int deviceType;
  int deviceVersion;
  VirtualDevice<kDevices> parts;
  size_t mostBytes;
  size_t mostBytesOfCollectives;
};
using PropertiesV9 = PropertiesOf<4>;
using PropertiesV10 = PropertiesOf<4>;
struct PropertiesV11 : PropertiesOf<4> {
  int mostInMultiRequest;
};
struct PropertiesV12 : PropertiesOf<8> {
  int mostInMultiRequest;
  int16_t rail;
  int16_t plane;
};
static_assert(sizeof(PropertiesV6) == 48 && sizeof(PropertiesV7) == 56 && sizeof(PropertiesV8) == 64);
static_assert(sizeof(PropertiesV9) == 104 && sizeof(PropertiesV11) == 112 && sizeof(PropertiesV12) == 128);

struct ConnectionConfig {
  int trafficClass;
};
struct DeviceHandle;  // for NCCL's kernels, which we do not serve

// Blocks of tables.
template <typename Init, typename Properties>
struct Head {
  const char* name;
  Init init;
  int (*devices)(int* count);
  int (*getProperties)(int device, Properties* properties);
};
using InitV6 = int (*)(Logger logger);
using InitV10 = int (*)(Logger logger, ProfilerCallback profiler);
using InitV11 = int (*)(void** context, uint64_t communicator, ConnectionConfig* config, Logger logger,
                        ProfilerCallback profiler);

struct MakingV6 {
  int (*listen)(int device, void* handle, void** listener);
  int (*connect)(int device, void* handle, void** sender);
  int (*accept)(void* listener, void** receiver);
};
struct MakingV7 {
  int (*listen)(int device, void* handle, void** listener);
  int (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  int (*accept)(void* listener, void** receiver, DeviceHandle** offload);
};
struct MakingV10 {
  int (*listen)(int device, void* handle, void** listener);
  int (*connect)(int device, ConnectionConfig* config, void* handle, void** sender, DeviceHandle** offload);
  int (*accept)(void* listener, void** receiver, DeviceHandle** offload);
};
struct MakingV11 {
  int (*listen)(void* context, int device, void* handle, void** listener);
  int (*connect)(void* context, int device, void* handle, void** sender, DeviceHandle** offload);
  int (*accept)(void* listener, void** receiver, DeviceHandle** offload);
};

// `Size` is int up to version 7.
template <typename Size>
struct Enrolling {
  int (*regMr)(void* connection, void* data, Size bytes, int pointer, void** memory);
  int (*regMrDmaBuf)(void* connection, void* data, size_t bytes, int pointer, uint64_t offset, int fd,
                     void** memory);
  int (*deregMr)(void* connection, void* memory);
};

// `Size` is int up to version 8.
template <typename Size>
struct MovingV6 {
  int (*isend)(void* sender, void* data, Size bytes, int tag, void* memory, void** request);
  int (*irecv)(void* receiver, int count, void** data, Size* bytes, int* tags, void** memories,
               void** request);
};
struct MovingV10 {
  int (*isend)(void* sender, void* data, size_t bytes, int tag, void* memory, void* profiled, void** request);
  int (*irecv)(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memories,
               void** profiled, void** request);
};

struct Ending {
  int (*iflush)(void* receiver, int count, void** data, int* bytes, void** memories, void** request);
  int (*test)(void* request, int* done, int* bytes);
  int (*closeSend)(void* sender);
  int (*closeRecv)(void* receiver);
  int (*closeListen)(void* listener);
};
struct Offload {
  int (*getDeviceMr)(void* connection, void* memory, void** onDevice);
  int (*irecvConsumed)(void* receiver, int count, void* request);
};
template <int kDevices>
struct Merging {
  int (*makeVDevice)(int* device, VirtualDevice<kDevices>* parts);
};
struct Contexts {
  int (*finalize)(void* context);
  int (*setNetAttr)(void* context, void* attributes);
};

struct TableV6 : Head<InitV6, PropertiesV6>, MakingV6, Enrolling<int>, MovingV6<int>, Ending {
  using Properties = PropertiesV6;
};
struct TableV7 : Head<InitV6, PropertiesV7>, MakingV7, Enrolling<int>, MovingV6<int>, Ending, Offload {
  using Properties = PropertiesV7;
};
struct TableV8 : Head<InitV6, PropertiesV8>, MakingV7, Enrolling<size_t>, MovingV6<int>, Ending, Offload {
  using Properties = PropertiesV8;
};
struct TableV9 : Head<InitV6, PropertiesV9>,
                 MakingV7,
                 Enrolling<size_t>,
                 MovingV6<size_t>,
                 Ending,
                 Offload,
                 Merging<4> {
  using Properties = PropertiesV9;
};
struct TableV10 : Head<InitV10, PropertiesV10>,
                  MakingV10,
                  Enrolling<size_t>,
                  MovingV10,
                  Ending,
                  Offload,
                  Merging<4> {
  using Properties = PropertiesV10;
};
struct TableV11 : Head<InitV11, PropertiesV11>,
                  MakingV11,
                  Enrolling<size_t>,
                  MovingV10,
                  Ending,
                  Offload,
                  Merging<4>,
                  Contexts {
  using Properties = PropertiesV11;
};
struct TableV12 : Head<InitV11, PropertiesV12>,
                  MakingV11,
                  Enrolling<size_t>,
                  MovingV10,
                  Ending,
                  Offload,
                  Merging<8>,
                  Contexts {
  using Properties = PropertiesV12;
};
static_assert(sizeof(TableV6) == 17 * sizeof(void*) && sizeof(TableV7) == 19 * sizeof(void*));
static_assert(sizeof(TableV8) == 19 * sizeof(void*) && sizeof(TableV9) == 20 * sizeof(void*));
static_assert(sizeof(TableV10) == 20 * sizeof(void*) && sizeof(TableV11) == 22 * sizeof(void*));
static_assert(sizeof(TableV12) == 22 * sizeof(void*));

}  // namespace stretto::net::abi
