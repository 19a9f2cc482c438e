// Tokens that a team of threads keeps in registers: which they are, and what the kernels for them are told.
// Whatever could be computed once is computed here, as these kernels must be short: at each launch their code
// is fetched again. Plain C++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "primitives/operation.hpp"

namespace stretto::cuda {

// What a kernel is told. Tokens lie one after the other in each place; none is null.
struct WholeTokens {
  const std::byte* input;
  const std::byte* residual;
  const std::byte* gamma;
  std::byte* residualOut;
  std::byte* normalised;
  uint32_t tokens;  // of all blocks
  uint32_t each;    // of a block, at most
  uint32_t packs;   // of a token
  uint32_t team;    // threads that have a token
  uint32_t teams;   // of a block: as many as there are threads and tokens for
  float hidden;
  float epsilon;

  static constexpr size_t kPack = 16;
  static constexpr uint32_t kPacks = 2;       // of a thread
  static constexpr uint32_t kMostTeam = 512;  // threads, in all teams of a block together
  static constexpr uint32_t kTeamGrain = 64;  // so that sixteen groups of 128 bytes are the least
  static constexpr uint32_t kMostTeams = kMostTeam / kTeamGrain;

  // Threads of a team, which have kPacks packs each.
  static constexpr uint32_t teamFor(size_t tokenBytes) {
    const size_t threads = (tokenBytes / kPack + kPacks - 1) / kPacks;
    return static_cast<uint32_t>((threads + kTeamGrain - 1) / kTeamGrain * kTeamGrain);
  }
  // Whether there are registers for a token.
  static constexpr bool holds(size_t tokenBytes) {
    return tokenBytes % kPack == 0 && tokenBytes <= kPacks * kPack * kMostTeam;
  }
  // Whether these kernels serve: whole packs that can be loaded as such, a residual, gamma and normalised
  // tokens, and nothing else.
  static bool serve(const Arguments& a, const NormArguments& norm) {
    const auto isPlain = [](const void* place) {
      return place != nullptr && reinterpret_cast<uintptr_t>(place) % kPack == 0;
    };
    return holds(norm.hidden * a.elementBytes) && isPlain(a.send) && isPlain(norm.residual) &&
           isPlain(norm.gamma) && isPlain(norm.residualOut) && isPlain(norm.normalised) &&
           norm.bias == nullptr && norm.reduced == nullptr && norm.scaling == Scaling::kNone &&
           a.count / norm.hidden <= INT32_MAX;
  }
  // For blocks that have `each` tokens, one after the other.
  WholeTokens(const Arguments& a, const NormArguments& norm, size_t tokensOfBlock)
      : input(a.send),
        residual(norm.residual),
        gamma(norm.gamma),
        residualOut(norm.residualOut),
        normalised(norm.normalised),
        tokens(static_cast<uint32_t>(a.count / norm.hidden)),
        each(static_cast<uint32_t>(tokensOfBlock)),
        packs(static_cast<uint32_t>(norm.hidden * a.elementBytes / kPack)),
        team(teamFor(norm.hidden * a.elementBytes)),
        teams(std::clamp<uint32_t>(kMostTeam / team, 1, std::max(1u, each))),
        hidden(static_cast<float>(norm.hidden)),
        epsilon(norm.epsilon) {}
};

}  // namespace stretto::cuda
