// How many channels and threads an operation may have, and where sums go that a norm apart begins with. Of
// engine.cu alone.
#pragma once

#include <algorithm>
#include <cstddef>

#include "algorithms/shares.hpp"
#include "executors/cuda/engine.hpp"
#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

inline int channelsOf(const stretto::cuda::Shape& shape, algorithms::Protocol protocol) {
  if (protocol == algorithms::Protocol::kWarpChunks) return shape.warpChunkChannels;
  return algorithms::isDeep(protocol) ? shape.deepChannels : shape.channels;
}

// Equally many packs of a token for all, and whole warps. The running sums of a token have a thread each.
inline int threadsForToken(const Arguments& a, int most) {
  constexpr size_t kWarp = 32, kPack = 16;
  const size_t packs = (a.tokenBytes() + kPack - 1) / kPack;
  const size_t each = (packs + static_cast<size_t>(most) - 1) / static_cast<size_t>(most);
  const size_t threads = ((packs + each - 1) / each + kWarp - 1) / kWarp * kWarp;
  return static_cast<int>(std::max(threads, 2 * kWarp));
}

inline int threadsOf(const WholeTokens& tokens) {
  return static_cast<int>(tokens.teams * tokens.team);
}
// Between ranks so many more, which exchange the tags.
inline constexpr int kTagThreads = 32;

// Where the user wants them, or a place that is written after they have been read; null: there is none.
inline std::byte* placeOfSums(const NormArguments& norm) {
  if (norm.reduced != nullptr) return norm.reduced;
  if (norm.normalised != nullptr) return norm.normalised;
  return norm.residualOut != norm.residual ? norm.residualOut : nullptr;
}

inline size_t roundUp(size_t value, size_t grain) {
  return (value + grain - 1) / grain * grain;
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
  // Among several ranks one more warp exchanges the tags of Lamport lines. Elsewhere each of a two-shot's
  // three stages needs a warp.
  const size_t more = launch.protocol == P::kLamport && ranks != 2 ? kWarp : 0;
  const bool threeStages =
      launch.protocol != P::kLamport && launch.algorithm == algorithms::Algorithm::kTwoShot;
  const size_t least = (threeStages ? 3 : 1) * kWarp;
  const size_t most = static_cast<size_t>(kernel.mostThreads);
  return static_cast<int>(std::min(std::max(roundUp(parts, kWarp), least) + more, most));
}

}  // namespace stretto::executors::cuda
