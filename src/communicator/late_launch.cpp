#include "communicator/late_launch.hpp"

#include <cmath>
#include <utility>

namespace stretto::communicator {

using stretto::cuda::Awaited;
using stretto::cuda::awaitedAt;

// Of the launches with a new look, the latest.
LateLaunch::Waiting LateLaunch::waitingNow(const KernelWaitsOf::Looks& now) {
  Waiting waiting;
  for (const Awaited what : {Awaited::kPeer, Awaited::kReceiver, Awaited::kSender}) {
    for (int peer = 0; peer < kMaxRanks; ++peer) {
      const auto at = static_cast<size_t>(awaitedAt(what, peer));
      const bool isNew = now[at].word() != before_[at].word();
      before_[at] = now[at];
      if (!isNew || now[at].launch < waiting.launch) continue;
      if (now[at].launch > waiting.launch) waiting = {now[at].launch, 0, what == Awaited::kPeer};
      waiting.peers |= uint64_t{1} << peer;
    }
  }
  return waiting;
}

LateLaunch::Found LateLaunch::look(const KernelWaitsOf::Looks& now, double seconds, const RunOf& runOf) {
  if (std::isinf(afterSeconds_)) return {};
  constexpr double kPauseSeconds = 1;  // a wait of which nothing is said for so long has ended
  const Waiting waiting = waitingNow(now);
  if (waiting.launch == 0) return {};
  const Run run = runOf(waiting.launch);
  // Nobody counts the transfers of a graph, so that its runs cannot be told apart.
  if (!run.isKnown && !waiting.isCollective) return {};
  const bool goesOn = waiting.launch == launch_ && run.number == run_ && seconds - seen_ <= kPauseSeconds;
  if (!goesOn) {
    launch_ = waiting.launch;
    run_ = run.number;
    began_ = seconds;
    isTold_ = false;
  }
  seen_ = seconds;
  if (seconds - began_ < afterSeconds_ || std::exchange(isTold_, true)) return {};
  return {waiting.launch, seconds - began_, waiting.peers, run.isKnown};
}

}  // namespace stretto::communicator
