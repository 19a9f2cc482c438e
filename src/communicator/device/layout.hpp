// How much of a GPU a communicator takes: lanes, and the window of each. Pure functions, equal on all ranks;
// the one place where the sizes of device windows are decided.
#pragma once

#include <cstddef>

#include "primitives/cuda/state.hpp"

namespace stretto::communicator {

// Of one rank, all lanes together.
inline constexpr size_t kMostDeviceBytes = size_t{60} << 20;
inline constexpr int kMostLanes = 128;
inline constexpr int kMostDeepLanes = 64;

// As many of the wanted lanes (1 to kMostLanes) as fit, each as large as then fits.
stretto::cuda::Shape deviceShape(int ranks, int wantedLanes);

// The blocks that a rank may have when `sharers` ranks, this one included, are on its device: those of all of
// them must be resident at once, because they wait for each other. At least 1.
int residentFor(int residentBlocks, int sharers);

}  // namespace stretto::communicator
