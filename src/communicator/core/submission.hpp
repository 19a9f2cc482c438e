// Runs the operations whose turn it is: plans them, and gives them to the host's engine or the GPU's. The
// queue has ordered them, and the communicator has found that they may run.
//
// Invariant: within one turn what peers may wait for comes first: puts, then transfers, then collectives in
// the order of the calls, and waits for peers last.
//
// Threads: the one whose turn it is, but for predict(), explain(), force() and probe(), which any thread may
// call.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.hpp"
#include "communicator/core/host_engine.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/journal.hpp"
#include "communicator/core/plans.hpp"
#include "communicator/core/queue.hpp"
#include "communicator/device/engine.hpp"
#include "planner/choose.hpp"

namespace stretto::communicator {

class Submission {
 public:
  Submission(const Identity& self, ControlPlane& plane, Health& health, Queue& queue,
             Connections& connections)
      : health_(health),
        queue_(queue),
        onDevice_(self.onDevice()),
        journal_(self, health, connections),
        host_(self),
        device_(self, plane, health, journal_, plans_, connections) {}

  // Operations of one turn.
  Status run(std::span<const Operation> operations);

  // What an operation would be planned as now. The same in words.
  Result<planner::Plan> predict(const Operation& operation);
  Result<std::string> explain(const planner::Request& request);
  // planner::Forced::force, in its turn.
  Status force(const char* collective, const char* algorithm, const char* protocol, size_t chunkBytes,
               int blocks);
  // Whether a receive from that rank would find something; of ranks in host memory. Waits for nothing: false
  // while operations are under way. Not ok if nothing comes from that rank any more.
  Result<bool> probe(int peer);

  // Lets go of what operations use.
  void closes();

  Journal& journal() { return journal_; }
  Plans& plans() { return plans_; }
  HostEngine& host() { return host_; }
  DeviceEngine& device() { return device_; }

 private:
  Status runTurn(std::span<const Operation> operations);
  Status runProfiled(std::span<const Operation> operations);
  Status runSeveral(std::span<const Operation> operations);
  Status runCollective(const Operation& operation);
  Status runSpread(const Running& running, Prepared& prepared);
  Status runTransfers(const Operation& first, std::span<const Operation> operations);
  Status runOneSided(std::span<const Operation> operations, bool waits);

  Health& health_;
  Queue& queue_;
  const bool onDevice_;
  Journal journal_;
  Plans plans_;
  HostEngine host_;
  DeviceEngine device_;
};

}  // namespace stretto::communicator
