// How much of a GPU a communicator takes: channels, and the window of each. Pure functions, equal on all
// ranks; the one place where the sizes of device windows are decided.
#pragma once

#include <cstddef>

#include "algorithms/shares.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::communicator {

// Of one rank, all channels together. Among four and eight ranks most of it is for Lamport lines.
constexpr size_t mostDeviceBytes(int ranks) {
  if (ranks == 2) return size_t{94} << 20;
  return size_t{algorithms::takesTurns(ranks) ? 104u : 60u} << 20;
}
inline constexpr int kMostChannels = 128;
inline constexpr int kMostDeepChannels = 64;

// As many of the wanted channels (1 to kMostChannels) as fit, each as large as then fits.
stretto::cuda::Shape deviceShape(int ranks, int wantedChannels);
// The same for ranks between which a proxy moves what their kernels put into links (links/net/proxy.hpp):
// links, and nothing else.
stretto::cuda::Shape proxiedShape(int ranks, int wantedChannels);

// How many kernels that wait for peers, of all communicators, may run at once on a device that `sharers`
// ranks of this one are on. `sharing` is STRETTO_SHARED_DEVICE.
//   0: ranks share no device: `sharers`, which is 1.
//   1: nobody has counted the kernels of other communicators there: two for each rank, and at least eight.
//   more: the user has counted them: that number, and at least `sharers`.
int kernelsAtOnce(int sharing, int sharers);
// The blocks that each of them may have: those of all must be resident, because they wait for each other, and
// one that waits keeps its multiprocessor. At least 1.
int residentFor(int residentBlocks, int kernels);

}  // namespace stretto::communicator
