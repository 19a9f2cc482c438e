// What all versions of NCCL's profiler plugin interface have in common: the table of six words, the numbers
// of events and states, the logger. The descriptors of each version are in abi_v*.hpp. These declarations are
// our own, made from the interface's binary layout; the static_asserts hold them to it. Plugins and their
// tests may include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto::profiler {

// NCCL's result codes, as far as a plugin needs them.
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

constexpr const char* nameOf(Type type) {
  constexpr const char* kNames[kTypes] = {
      "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
      "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl",    "CeSync",    "CeBatch",  "KernelPhase"};
  return static_cast<int>(type) < kTypes ? kNames[static_cast<int>(type)] : "unknown";
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

// Numbers of the states that say more than that they were reached; the others are kept as numbers.
enum State : int {
  kProxyOpFirst = 0,  // to 7: v1 to v3, with the bytes moved and the steps done
  kProxyOpLast = 7,
  kStepSendGpuWait = 8,  // to 12: of a proxy step
  kStepRecvGpuWait = 12,
  kCtrlFirst = 13,
  kCtrlAppendEnd = 18,
  kStepSendPeerWait = 20,  // recorded at every poll until the peer is ready
  kNetPluginUpdate = 21,
  kKernelChStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
  kKernelPhaseStop = 31,
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

using InitV1 = int (*)(void** context, int* mask);
using InitV4 = int (*)(void** context, int* mask, const char* name, uint64_t communicator, int nodes,
                       int ranks, int rank, Logger logger);
using InitV5 = int (*)(void** context, uint64_t communicator, int* mask, const char* name, int nodes,
                       int ranks, int rank, Logger logger);

}  // namespace stretto::profiler

// Begins the definition of a table. In this form, without braces around it, a constant is not internal to its
// file.
#define STRETTO_PROFILER_EXPORT extern "C" __attribute__((visibility("default"))) const
