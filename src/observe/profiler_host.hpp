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

namespace stretto::observe::profiler {

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
    kind::kProxyOp | kind::kProxyStep | kind::kKernelChannel | kind::kNetPlugin;
inline constexpr uint32_t kCollectiveBits = kind::kCollective | kUnderKernel;
inline constexpr uint32_t kP2pBits = kind::kP2p | kUnderKernel;
inline constexpr uint32_t kGroupBits = kind::kGroup | kCollectiveBits | kP2pBits;
inline constexpr uint32_t kCollectiveApiBits = kind::kCollectiveApi | kCollectiveBits;
inline constexpr uint32_t kP2pApiBits = kind::kP2pApi | kP2pBits;
inline constexpr uint32_t kGroupApiBits =
    kind::kGroupApi | kCollectiveApiBits | kP2pApiBits | kGroupBits | kind::kKernelLaunch;
inline constexpr uint32_t kProxyOpBits = kind::kProxyOp | kind::kProxyStep | kind::kNetPlugin;
inline constexpr uint32_t kProxyStepBits = kind::kProxyStep | kind::kNetPlugin;

struct SessionIdentity {
  uint64_t communicator = 0;
  std::string name;  // empty: the user gave none
  int nodes = 1;
  int ranks = 1;
  int rank = 0;
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
  Descriptor describe(uint64_t type, void* parent) const;
  void* start(Descriptor& descriptor) const;
  // Nothing for null.
  void stop(void* handle) const;
  void record(void* handle, State state, StateArguments* arguments = nullptr) const;

 private:
  Session(const Table* table, void* context, int rank);

  const Table* table_;
  void* context_;
  const int rank_;
  const uint32_t forkGeneration_;
};

}  // namespace stretto::observe::profiler
