#include "communicator/device/late_launch.hpp"

#include <algorithm>
#include <cmath>

namespace stretto::communicator {

using stretto::cuda::Awaited;
using stretto::cuda::awaitedAt;
using stretto::cuda::LongLook;

// Of the launches with a new look, the latest.
LateLaunch::Found LateLaunch::waitingNow(const KernelWaitsOf::Looks& now) {
  Found waiting;
  for (const Awaited what : {Awaited::kPeer, Awaited::kReceiver, Awaited::kSender}) {
    for (int peer = 0; peer < kMaxRanks; ++peer) {
      const auto at = static_cast<size_t>(awaitedAt(what, peer));
      const bool isNew = now[at].word() != before_[at].word();
      before_[at] = now[at];
      if (!isNew || now[at].launch < waiting.launch) continue;
      if (now[at].launch > waiting.launch) waiting = {now[at].launch, 0, 0};
      waiting.peers |= uint64_t{1} << peer;
      waiting.seconds = std::max(waiting.seconds, now[at].waited * LongLook::kSpanSeconds);
    }
  }
  return waiting;
}

// What a wait began with may be known a span or two more or less exactly, as it goes on.
LateLaunch::Found LateLaunch::look(const KernelWaitsOf::Looks& now, double seconds) {
  constexpr double kSameSeconds = 1;
  const Found waiting = waitingNow(now);
  if (waiting.launch == 0 || waiting.seconds < afterSeconds_) return {};
  const double began = seconds - waiting.seconds;
  const bool isReported = waiting.launch == reported_ && std::abs(began - began_) < kSameSeconds;
  reported_ = waiting.launch;
  began_ = began;
  return isReported ? Found{} : waiting;
}

}  // namespace stretto::communicator
