// Notices a launch of a rank's own GPU that has waited for a peer for long, once in each wait, from what the
// device says of its waits ten times a second. Plain values; the communicator says it in words.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "communicator/kernel_waits.hpp"

namespace stretto::communicator {

class LateLaunch {
 public:
  explicit LateLaunch(double afterSeconds) : afterSeconds_(afterSeconds) {}

  struct Found {
    uint32_t launch = 0;   // low 32 bits of its number; 0: nothing to tell
    double seconds = 0;    // for how long it has waited
    uint64_t peers = 0;    // for whom, a bit each
    bool isKnown = false;  // no graph's
  };
  // Which run of a launch waits now: `number` grows when a graph runs again under the number of the launch.
  struct Run {
    bool isKnown = false;
    uint64_t number = 0;
  };
  // `now`: what the device has said by now; `seconds`: of a clock that only grows. `runOf` is asked while one
  // waits.
  using RunOf = std::function<Run(uint32_t launch)>;
  Found look(const KernelWaitsOf::Looks& now, double seconds, const RunOf& runOf);

 private:
  struct Waiting {
    uint32_t launch = 0;
    uint64_t peers = 0;
    bool isCollective = false;
  };
  Waiting waitingNow(const KernelWaitsOf::Looks& now);

  const double afterSeconds_;
  KernelWaitsOf::Looks before_{};
  // The wait that was seen last.
  uint32_t launch_ = 0;
  uint64_t run_ = 0;
  double began_ = 0;
  double seen_ = 0;
  bool isTold_ = false;
};

}  // namespace stretto::communicator
