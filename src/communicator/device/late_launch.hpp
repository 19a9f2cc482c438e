// Notices a launch of a rank's own GPU that has waited for a peer for long, once in each wait, from what the
// device says of its waits twenty times a second. Plain values; the communicator says it in words.
#pragma once

#include <cstdint>

#include "communicator/device/kernel_waits.hpp"

namespace stretto::communicator {

class LateLaunch {
 public:
  explicit LateLaunch(double afterSeconds) : afterSeconds_(afterSeconds) {}

  struct Found {
    uint32_t launch = 0;  // low 32 bits of its number, which a graph's has in every run; 0: nothing to tell
    double seconds = 0;   // for how long it has waited
    uint64_t peers = 0;   // for whom, a bit each
  };
  // `now`: what the device has said by now; `seconds`: of a clock that only grows.
  Found look(const KernelWaitsOf::Looks& now, double seconds);

 private:
  Found waitingNow(const KernelWaitsOf::Looks& now);

  const double afterSeconds_;
  KernelWaitsOf::Looks before_{};
  // The wait that was told of last: its launch, and when it began.
  uint32_t reported_ = 0;
  double began_ = 0;
};

}  // namespace stretto::communicator
