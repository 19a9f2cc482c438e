// What a communicator takes, what of that it can give back for a while, and what its waits have cost.
//
// Invariant: while it is suspended no call is taken, and memory that is needed again is had when it is. On
// GPUs nothing is given back: all memory is the window, which kernels of peers may write at any time.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/status.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/queue.hpp"
#include "communicator/core/submission.hpp"

namespace stretto::communicator {

class Resources {
 public:
  Resources(const Identity& self, const Health& health, Queue& queue, Submission& submission,
            const Connections& connections)
      : self_(self), health_(health), queue_(queue), submission_(submission), connections_(connections) {}

  // Once nothing runs; no call may come until resume().
  Status suspend();
  Status resume();
  bool isSuspended() const { return suspended_.load(std::memory_order_relaxed); }
  // What suspend() would give back; when nothing runs.
  size_t suspendableBytes();
  size_t windowBytes();
  WaitCounters waitCounters();

 private:
  const Identity& self_;
  const Health& health_;
  Queue& queue_;
  Submission& submission_;
  const Connections& connections_;
  std::atomic<bool> suspended_{false};
};

}  // namespace stretto::communicator
