// How many channels and threads an operation may have. Of engine.cu alone.
#pragma once

#include <algorithm>
#include <cstddef>

#include "algorithms/shares.hpp"
#include "executors/cuda/engine.hpp"
#include "executors/cuda/kernels.cuh"
#include "executors/cuda/norms.hpp"

namespace stretto::executors::cuda {

inline int channelsOf(const stretto::cuda::Shape& shape, algorithms::Protocol protocol) {
  if (protocol == algorithms::Protocol::kWarpChunks) return shape.warpChunkChannels;
  return algorithms::isDeep(protocol) ? shape.deepChannels : shape.channels;
}

inline size_t roundUp(size_t value, size_t grain) {
  return (value + grain - 1) / grain * grain;
}

// The operation as its kernel's blocks, or their warps, cut it.
inline Arguments sharesOf(const Launch& launch, const Kernel& kernel, int ranks) {
  return algorithms::withShares(launch.arguments, launch.blocks * kernel.linkWarps,
                                algorithms::shareGrainOf(launch.algorithm, launch.protocol, ranks));
}

// As many threads as have something to do: fewer begin and end sooner.
inline int threadsFor(const Launch& launch, const Kernel& kernel, int ranks) {
  if (algorithms::isDeep(launch.protocol) || launch.protocol == algorithms::Protocol::kWarpChunks) {
    return kernel.mostThreads;
  }
  constexpr size_t kWarp = 32;
  if (launch.arguments.norm != nullptr) {
    return threadsForToken(launch.arguments, kernel.mostThreads - kTagThreads) + kTagThreads;
  }
  using P = algorithms::Protocol;
  const size_t bytes = launch.arguments.bytes() / static_cast<size_t>(launch.blocks) /
                           algorithms::shardsOf(launch.algorithm, ranks) +
                       64;
  const size_t parts = launch.protocol == P::kLL128     ? (bytes + 119) / 120 * LL128Format::kLineThreads
                       : launch.protocol == P::kLamport ? bytes / sizeof(stretto::cuda::Pack)
                                                        : bytes / stretto::cuda::kUnitBytes;
  // Where Lamport lines do not go in turns, one more warp exchanges their tags. Elsewhere each of a
  // two-shot's three stages needs a warp.
  const size_t more = launch.protocol == P::kLamport && !algorithms::takesTurns(ranks) ? kWarp : 0;
  const bool threeStages =
      launch.protocol != P::kLamport && launch.algorithm == algorithms::Algorithm::kTwoShot;
  const size_t least = (threeStages ? 3 : 1) * kWarp;
  const size_t most = static_cast<size_t>(kernel.mostThreads);
  return static_cast<int>(std::min(std::max(roundUp(parts, kWarp), least) + more, most));
}

}  // namespace stretto::executors::cuda
