// Stretto as a host of NCCL's profiler plugins: what a communicator tells a plugin, and whether one listens.
// The communicator layer builds the descriptors and calls these at its own places; callbacks run on the
// calling thread, at once, as NCCL makes them (docs/decisions/0008-profiler-host.md). While a session exists
// base/watch.hpp says so; with none, its word is all that an operation looks at.
//
// Handles are the plugin's: opaque, null for an event that is not recorded, passed back as they came.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "observe/profiler_abi.hpp"
#include "platform/clock.hpp"

namespace stretto::observe::profiler {

struct PluginTables;

namespace internal {
extern int gMask;
}

// The bits of `kind` that the process's plugin wants now; 0 without one. A plugin may change it at any time,
// so an operation asks once, when it is called.
inline uint32_t mask() {
  return static_cast<uint32_t>(std::atomic_ref(internal::gMask).load(std::memory_order_relaxed));
}

// A lower event makes the events above it come too: each of these is wanted when one of its bits is set.
inline constexpr uint32_t kUnderKernel =
    bit(Type::kProxyOp) | bit(Type::kProxyStep) | bit(Type::kKernelCh) | bit(Type::kNetPlugin);
inline constexpr uint32_t kCollectiveBits = bit(Type::kColl) | kUnderKernel;
inline constexpr uint32_t kP2pBits = bit(Type::kP2p) | kUnderKernel;
inline constexpr uint32_t kGroupBits = bit(Type::kGroup) | kCollectiveBits | kP2pBits;
inline constexpr uint32_t kCollectiveApiBits = bit(Type::kCollApi) | kCollectiveBits;
inline constexpr uint32_t kP2pApiBits = bit(Type::kP2pApi) | kP2pBits;
inline constexpr uint32_t kGroupApiBits =
    bit(Type::kGroupApi) | kCollectiveApiBits | kP2pApiBits | kGroupBits | bit(Type::kKernelLaunch);
inline constexpr uint32_t kProxyOpBits = bit(Type::kProxyOp) | bit(Type::kProxyStep) | bit(Type::kNetPlugin);
inline constexpr uint32_t kProxyStepBits = bit(Type::kProxyStep) | bit(Type::kNetPlugin);

struct SessionIdentity {
  uint64_t communicator = 0;
  std::string name;  // empty: the user gave none
  int nodes = 1;
  int ranks = 1;
  int rank = 0;
  uint64_t every = 1;  // of each function's operations one in so many is told of
};

// One communicator's place in the plugin: its context, from init to finalize. The plugin stays loaded while
// one exists. start, stop and record may be called by any thread.
class Session {
 public:
  // Null if there is no plugin, or its init refused this communicator; which is said in the log.
  static std::shared_ptr<Session> open(const SessionIdentity& identity);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  // A descriptor of `type`, of this rank, with everything else zero.
  DescriptorV7 describe(Type type, void* parent) const {
    DescriptorV7 descriptor = blank_;
    descriptor.type = bit(type);
    descriptor.parent = parent;
    return descriptor;
  }
  // Whether the plugin is called through StampedTable.
  bool isStamped() const { return stamped_ != nullptr; }
  // When callbacks that are made now are to be told to have happened, for `at`; 0 for a plugin that does not
  // care.
  uint64_t now() const { return stamped_ != nullptr ? platform::ticks() : 0; }
  // `at`: when it happened, by platform::ticks(); 0: now. As StampedTable has it; other plugins are not told.
  void* start(DescriptorV7& descriptor, uint64_t at) const {
    void* handle = nullptr;
    if (stamped_ != nullptr) {
      (void)stamped_->start(context_, &handle, &descriptor, at);
    } else {
      (void)table_->start(context_, &handle, &descriptor);
    }
    return handle;
  }
  // Nothing for null.
  void stop(void* handle, uint64_t at) const {
    if (handle == nullptr) return;
    (void)(stamped_ != nullptr ? stamped_->stop(handle, at) : table_->stop(handle));
  }
  void record(void* handle, State state, ArgumentsV4* arguments, uint64_t at) const {
    if (handle == nullptr) return;
    (void)(stamped_ != nullptr ? stamped_->state(handle, state, arguments, at)
                               : table_->state(handle, state, arguments));
  }

 private:
  Session(const PluginTables& tables, void* context, int rank);

  const TableV5* table_;
  const StampedTable* stamped_;
  void* context_;
  const int rank_;
  DescriptorV7 blank_;  // copied, which is faster than clearing
  const uint32_t forkGeneration_;
};

}  // namespace stretto::observe::profiler
