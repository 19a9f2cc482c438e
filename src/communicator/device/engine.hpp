// Enqueues the operations of a rank on its GPU: collectives, transfers, one-sided operations, and groups that
// share a launch. What has been enqueued is the watchdog's to look after. A rank in host memory has none of
// it.
//
// Invariant: what is refused before an operation is announced, this rank has not called; what was announced
// is launched, or the communicator fails.
//
// Threads: the one whose turn it is, but for watchdog().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/status.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/journal.hpp"
#include "communicator/core/plans.hpp"
#include "communicator/device/together.hpp"
#include "communicator/device/watchdog.hpp"

namespace stretto::communicator {

class DeviceEngine {
 public:
  DeviceEngine(const Identity& self, ControlPlane& plane, Health& health, Journal& journal, Plans& plans,
               Connections& connections)
      : self_(self),
        plane_(plane),
        health_(health),
        journal_(journal),
        plans_(plans),
        connections_(connections),
        watchdog_(self, plane, health, journal.flight(), connections) {}

  // Finds out whether the ranks reach each other's GPUs, and makes the device side; collective. If they do
  // not, the connections say why, and there is none. `watch`: what the device's thread calls again and again,
  // until it is false.
  Status opens(std::function<bool()> watch);
  // Kernels may still run: what they use is freed when that is over.
  void closes();
  // That may run on this rank's device, of all ranks there; 0 before it is open. Any thread.
  int kernelsAtOnce() const { return kernelsAtOnce_.load(std::memory_order_relaxed); }
  bool isOpen() const { return watchdog_.side() != nullptr; }
  DeviceSide& side() const { return *watchdog_.side(); }
  LaunchWatchdog& watchdog() { return watchdog_; }

  // Before anything of them is announced.
  Status mayLaunch(std::span<const Operation> operations);
  // A collective whose plan is `prepared`.
  Status run(const Operation& operation, Prepared& prepared) {
    uint64_t alone = 0;
    return run(operation, prepared, alone);
  }
  // The sends and receives among `operations`.
  Status runTransfers(const Operation& first, std::span<const Operation> operations);
  Status runOneSided(const Running& running);
  // The collectives of a group, in the order of the calls.
  Status runTogether(std::span<const Operation> operations);

 private:
  Status run(const Operation& operation, Prepared& prepared, uint64_t& layout);
  Running enter(const Operation& operation, const Prepared& prepared, uint64_t& layout);
  std::pair<uint64_t, uint64_t> placesOf(const Operation& operation, const planner::Plan& plan) const;
  Status launch(const Running& running, const planner::Plan& plan, const Arguments& arguments);
  Status mayPutTo(int peer) const;
  Status reachWindows(int peer);  // that an operation needs, or DeviceSide::kEverybody
  uint64_t layOut(std::span<const Operation> operations);
  bool joins(const Operation& operation, const Together::Placed& placed, uint64_t& layout);
  Status launchTogether();
  void followKernels();
  void reportLaunched(const Operation& operation, const planner::Plan& plan,
                      const executors::cuda::Engine::Launched& launched);
  Status concludeLaunch(const Running& running, LaunchLog::Entry entry, Status status);

  const Identity& self_;
  ControlPlane& plane_;
  Health& health_;
  Journal& journal_;
  Plans& plans_;
  Connections& connections_;
  std::atomic<int> kernelsAtOnce_{0};
  LaunchWatchdog watchdog_;
  Together together_;  // of the group that runs
};

}  // namespace stretto::communicator
