// How much of a GPU a communicator takes: channels, and the window of each. Pure functions, equal on all
// ranks; the one place where the sizes of device windows are decided.
#pragma once

#include <cstddef>

#include "algorithms/shares.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::communicator {

// Of one rank, all channels together. Among four and eight ranks most of it is for Lamport lines.
constexpr size_t mostDeviceBytes(int ranks) {
  if (ranks == 2) return size_t{76} << 20;
  return size_t{algorithms::takesTurns(ranks) ? 104u : 60u} << 20;
}
inline constexpr int kMostChannels = 128;
inline constexpr int kMostDeepChannels = 64;

// As many of the wanted channels (1 to kMostChannels) as fit, each as large as then fits.
stretto::cuda::Shape deviceShape(int ranks, int wantedChannels);
// The same for ranks between which a proxy moves what their kernels put into links (links/net/proxy.hpp):
// links, and nothing else.
stretto::cuda::Shape proxiedShape(int ranks, int wantedChannels);

// The blocks that a rank may have when `sharers` ranks, this one included, are on its device: those of all of
// them must be resident at once, because they wait for each other. At least 1.
int residentFor(int residentBlocks, int sharers);

}  // namespace stretto::communicator
