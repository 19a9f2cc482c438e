// NCCL's half of a communicator that is handed over to it; of all others there is none.
//
// Invariant: once NCCL's half is there it stays to the end, for calls on their way out; so whoever has found
// it may use it. Threads: get() and abort() any, the rest as NCCL has it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "base/status.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/journal.hpp"
#include "communicator/handover/foreign.hpp"

namespace stretto::communicator {

class HandedOver {
 public:
  HandedOver(const Identity& self, const ControlPlane& plane, Health& health)
      : self_(self), plane_(plane), health_(health) {}

  // Ranks that cannot be served here are served by NCCL from the beginning, all of them: nothing was enqueued
  // yet. `why`: or empty, if they are too many.
  Status begin(std::string why);
  // Null for all other communicators.
  Foreign* get() const { return now_.load(); }

  Status run(std::span<const Operation> operations, Journal& journal);
  // What NCCL noticed becomes this communicator's error.
  Status poll();
  // Ends NCCL's half, after its work if the communicator was finalised.
  void end();
  void abort();

 private:
  const Identity& self_;
  const ControlPlane& plane_;
  Health& health_;
  std::unique_ptr<Foreign> foreign_;
  std::atomic<Foreign*> now_{nullptr};
};

}  // namespace stretto::communicator
