// How an all-reduce with RMSNorm is launched: how its tokens are cut, by how many threads, and where sums go
// that a norm apart begins with. Of engine.cu alone.
#pragma once

#include <algorithm>
#include <cstddef>

#include "algorithms/token_cut.hpp"
#include "executors/cuda/engine.hpp"

namespace stretto::executors::cuda {

using stretto::cuda::WholeTokens;

// As the planner cut them.
inline algorithms::TokenCut cutOf(const Launch& launch, const Setup& setup) {
  const Arguments& a = launch.arguments;
  return {.algorithm = launch.algorithm,
          .ranks = setup.ranks,
          .tokens = a.count / a.norm->hidden,
          .tokenBytes = a.tokenBytes(),
          .payload = setup.payload(),
          .chunkBytes = a.chunkBytes};
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

// Where the user wants them, or a buffer that is written after they have been read; null: there is none.
inline std::byte* bufferForSums(const NormArguments& norm) {
  if (norm.reduced != nullptr) return norm.reduced;
  if (norm.normalised != nullptr) return norm.normalised;
  return norm.residualOut != norm.residual ? norm.residualOut : nullptr;
}

}  // namespace stretto::executors::cuda
