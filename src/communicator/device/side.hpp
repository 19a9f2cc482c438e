// A communicator rank's half on its GPU: connections, engine, and what is kept beside them so that operations
// can be enqueued safely. Owned by the communicator; when that lets go, kernels may still run here or write
// here, so it is handed to letGo(), which frees it when that is over.
//
// Threads: enqueue() and the like by one thread at a time; abort(), report() and idle() may come from any.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "communicator/core/connect.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/device/connect.hpp"
#include "communicator/device/kernel_waits.hpp"
#include "communicator/device/late_launch.hpp"
#include "communicator/device/registered.hpp"
#include "communicator/device/windows.hpp"
#include "executors/cuda/engine.hpp"
#include "executors/cuda/order.hpp"
#include "links/net/proxy.hpp"

namespace stretto::communicator {

using executors::cuda::StreamHandle;

class DeviceSide {
 public:
  struct Limits {
    double timeoutSeconds = 0;    // of a wait of a kernel
    double warnAfterSeconds = 0;  // infinity: never
  };
  // `host`: what reaches the ranks' posts.
  static Result<std::unique_ptr<DeviceSide>> create(DeviceConnections connections, const Connections& host,
                                                    int rank, int ranks, Limits limits);

  int device() const { return connections_.device; }
  const stretto::cuda::Shape& shape() const { return connections_.shape; }
  size_t windowBytes() const { return proxy_ != nullptr ? proxy_->bytes() : reached_->bytes(); }

  // If some rank needs windows, has this one's made and offered, and those of the others opened, by a thread
  // of its own. Any thread.
  void serveSoon();
  // Before a kernel that needs `peer`, or everybody: opens their windows. `nudge` asks those for theirs who
  // have none yet; who is needed is waited for as kernels wait.
  static constexpr int kEverybody = DeviceWindows::kEverybody;
  bool reaches(int peer) const {
    return reachesAll_ || (peer != kEverybody && windowsOf_[static_cast<size_t>(peer)] != nullptr);
  }
  Status reach(int peer, const std::function<void()>& nudge);
  // Who has left before it was reached; else -1.
  int absentee() const;
  // Once nothing runs any more, by a rank that leaves: waits, for `seconds` at most, until peers have what
  // they need to read what it has sent. Returns one that has not, or -1.
  int awaitPeers(double seconds) const { return hasReached_ ? reached_->awaitOpened(seconds) : -1; }
  // Where a proxy moves what is sent: until that has left, or `ends()`. False if it has not.
  bool leave(double seconds, const std::function<bool()>& ends) const {
    return proxy_ == nullptr || proxy_->leave(seconds, ends);
  }
  // A peer whose link over the net has not worked for `seconds`, and why; -1: none.
  int brokenFor(double seconds, std::string& words) const {
    return proxy_ == nullptr ? -1 : proxy_->brokenFor(seconds, words);
  }

  // That kernels of this device can use the buffers: asked of CUDA once for each place.
  Status checkBuffers(const Operation& operation);

  // A buffer that all ranks register together; `handle` is its user's name for it.
  Status registerWindow(bootstrap::Membership& membership, const void* handle, WindowRequest request);
  // Waits for what this rank's GPU runs where that is needed, not long, and not once `ending` is non-zero.
  void deregisterWindow(const void* handle, const std::atomic<uint32_t>& ending);
  // Of a peer's buffer there, in this rank's addresses.
  Status windowAddress(const void* handle, int peer, size_t offset, void** out) const {
    return windows_.address(handle, peer, offset, 0, out);
  }
  // Where copy engines of all ranks may write the results of an operation; no window if they may not.
  WindowPlace resultsOf(const Operation& operation) const { return windows_.resultsOf(operation, ranks_); }
  // What kernels of all ranks may read of it.
  PullPlaces pullsOf(const Operation& operation) const { return windows_.pullsOf(operation); }
  // Tells the planner of both; where nothing is moved, that there are windows.
  void addWindows(const Operation& operation, planner::Request& request) const;

  // Enqueue on the user's stream, after everything enqueued here before.
  Status launch(const executors::cuda::Launch& launch, StreamHandle stream);
  // Several of one stream in one launch, if the engine says that each joins those before it.
  bool mayShare(const executors::cuda::Launch& launch) const { return engine_->mayShare(launch); }
  bool joins(std::span<const executors::cuda::Launch> before, const executors::cuda::Launch& next) const {
    return engine_->joins(before, next);
  }
  Status launchTogether(std::span<const executors::cuda::Launch> launches, StreamHandle stream);
  // The sends and receives among `operations`, all at once: on the stream of the first, the others wait for
  // it.
  Status launchTransfers(std::span<const Operation> operations);

  // One of those: what can be judged of it before it is launched, any thread; and its launch.
  Status checkOneSided(const Operation& operation) const;
  Status launchOneSided(const Operation& operation);

  // Spans of kernels, for profilers: as the engine says.
  Status wantStamps() { return engine_->wantStamps(); }
  executors::cuda::Engine::Launched lastLaunch() const { return engine_->lastLaunch(); }
  executors::cuda::Engine::Launched lastOf(size_t place) const { return engine_->lastOf(place); }
  executors::cuda::Engine::Launched lastTransfers(const Operation& operation) const;
  size_t takeStamps(std::span<executors::cuda::KernelStamp> stamps, uint64_t& lost) {
    return engine_->takeStamps(stamps, lost);
  }

  void abort(uint32_t word) { engine_->abort(word); }
  executors::cuda::Report report() const { return engine_->report(); }
  // Ten times a second, by one thread: publishes which launch waits; true if one has waited for long.
  bool publishWaits(const KernelWaitsOf::Find& find) { return waits_.publish(engine_->longLooks(), find); }
  // As often, and by the same thread: a launch of which it is time to warn.
  LateLaunch::Found late();
  // Each time that one has; `gone`: the ranks, a bit each, that have left or given up.
  Standstill::Found standstill(uint64_t gone) { return standstill_.find(rank_, allWaits_, gone); }
  // Kernels of collectives that have ended, replays of graphs included. Asks the device: some microseconds.
  executors::cuda::KernelCounts finished() const;
  // Those enqueued so far that finished() will count; captured ones left out.
  executors::cuda::KernelCounts counted() const { return counted_; }
  // Whether the last operation was enqueued to run, not captured.
  bool lastRuns() const { return lastRuns_; }
  // Waits until no kernel of this rank runs, for `seconds` at most and until `ends()` says true.
  bool idle(double seconds, const std::function<bool()>& ends = {}) const;

 private:
  DeviceSide(DeviceConnections connections, const Connections& host, int rank, int ranks, Limits limits)
      : connections_(std::move(connections)),
        reached_(std::make_shared<DeviceWindows>(connections_, host, limits.timeoutSeconds)),
        waits_(host.kernelWaits(rank)),
        late_(limits.warnAfterSeconds),
        order_(connections_.device, connections_.mayShare),
        rank_(rank),
        ranks_(ranks) {
    if (connections_.mayShare) sharing_.emplace(connections_.device);
    for (int peer = 0; peer < ranks; ++peer) allWaits_.push_back(&host.kernelWaits(peer));
  }

  Status useProxy(const FarLinks& far);
  Status checkBuffer(const Operation& operation, const void* buffer, const char* which);
  template <typename Enqueue>
  Status inOrder(StreamHandle stream, const Enqueue& enqueue);

  std::optional<platform::cuda::SharingDevice> sharing_;  // outlives all memory
  const DeviceConnections connections_;
  const std::shared_ptr<DeviceWindows> reached_;   // outlives the engine, whose kernels use it; and a thread
  std::array<std::byte*, kMaxRanks> windowsOf_{};  // as the engine has them; null for who is not reached
  bool hasReached_ = false;                        // that it is open
  bool reachesAll_ = false;                        // and nobody was absent
  Windows windows_;                                // outlives the engine, too
  bool reportedApart_ = false;                     // that one of them is not used
  KernelWaitsOf waits_;                            // in host windows, which outlive this
  std::vector<const KernelWaits*> allWaits_;       // by rank
  Standstill standstill_;
  LateLaunch late_;
  std::unique_ptr<links::net::Proxy> proxy_;  // of ranks on several hosts, in place of windows in the device
  std::unique_ptr<executors::cuda::Engine> engine_;
  executors::cuda::Order order_;
  const int rank_;
  const int ranks_;
  executors::cuda::KernelCounts counted_;
  bool lastRuns_ = false;
  // Pages (of 2 MiB) of buffers that were found to be the device's.
  static constexpr size_t kKnownPlaces = 64;
  std::array<uintptr_t, kKnownPlaces> places_{};
  std::vector<executors::cuda::DeviceTransfer> transfers_;
};

// What the planner must know of it.
Status describe(const stretto::cuda::Shape& shape, const planner::Gpus& gpus, planner::Machine& machine);

// Frees a rank's device side, and `connections`, its host windows, once its kernels are done and no peer may
// write to it any more: now if that can be seen at once, else when a later call of the process finds it so.
// `absent`: this rank, and those that are lost, for which nobody waits. `patience`: seconds to wait for the
// others.
void letGo(std::unique_ptr<DeviceSide> device, Connections connections, std::vector<int> absent,
           double patience);
// Looks through what could not be freed at once.
void freeWhatCanBe();

}  // namespace stretto::communicator
