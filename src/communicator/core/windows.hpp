// Windows that the ranks of a communicator register together (ncclCommWindowRegister), and what can be asked
// of them; in host memory and on GPUs. Ranks of one host only.
//
// Invariant: windows take turns like operations, so that an abort on another thread finds them under way; it
// forgets them all.
#pragma once

#include <cstddef>

#include "base/status.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/core/submission.hpp"

namespace stretto::communicator {

class SharedWindows {
 public:
  SharedWindows(const Identity& self, const ControlPlane& plane, const Health& health, Queue& queue,
                Submission& submission)
      : self_(self), plane_(plane), health_(health), queue_(queue), submission_(submission) {}

  // Whether this communicator has them.
  bool are() const {
    const HostEngine& host = submission_.host();
    return host.isOpen() && areOfOneHost() && (!submission_.device().isOpen() || self_.ranks() > 1);
  }
  bool areOfOneHost() const { return !plane_.isSpread(); }
  // Ranks in groups of so many are neighbours of one host (HostMap::largestTeam); 0 where NCCL serves them.
  int largestTeam() const { return plane_.places().largestTeam(); }
  // Collective. `handle` is the user's name for it; `refused` is what this rank tells all others instead of a
  // buffer.
  Status add(const void* handle, void* buffer, size_t bytes, Status refused);
  void remove(const void* handle);
  // Of a peer's buffer there, in this rank's addresses.
  Status address(const void* handle, int peer, size_t offset, void** out);
  // Judges one rank's one-sided operation, which uses windows.
  Status check(const Operation& operation);

 private:
  const Identity& self_;
  const ControlPlane& plane_;
  const Health& health_;
  Queue& queue_;
  Submission& submission_;
};

}  // namespace stretto::communicator
