// Tokens that a team of threads keeps in registers: which they are, and what the kernels for them are told.
// Whatever could be computed once is computed here, as these kernels must be short: at each launch their code
// is fetched again. Plain C++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "primitives/operation.hpp"

namespace stretto::cuda {

// What a kernel is told. Tokens lie one after the other in each buffer; input and residualOut are never null,
// and what is null otherwise is not there.
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
  const std::byte* bias;
  std::byte* reduced;
  std::byte* quantised;
  float* scales;
  Scaling scaling;
  DataType quantisedType;

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
  // Whether these kernels serve: whole packs that can be loaded and stored as such. An 8-bit copy has eight
  // or four codes for a pack: all that it needs is to begin where so many can be stored at once.
  static bool serve(const Arguments& a, const NormArguments& norm) {
    const auto isAt = [](const void* pointer, size_t grain) {
      return reinterpret_cast<uintptr_t>(pointer) % grain == 0;  // also of what is not there
    };
    const void* const pointers[] = {a.send,           norm.residual,   norm.bias,   norm.gamma,
                                    norm.residualOut, norm.normalised, norm.reduced};
    return holds(norm.hidden * a.elementBytes) &&
           std::all_of(std::begin(pointers), std::end(pointers),
                       [&](const void* pointer) { return isAt(pointer, kPack); }) &&
           (norm.scaling == Scaling::kNone || isAt(norm.quantised, kPack / a.elementBytes)) &&
           a.count / norm.hidden <= INT32_MAX;
  }
  // The common call: residual, gamma and normalised tokens, and nothing else. Its kernels are the shortest.
  constexpr bool isPlain() const {
    return residual != nullptr && gamma != nullptr && normalised != nullptr && bias == nullptr &&
           reduced == nullptr && scaling == Scaling::kNone;
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
        epsilon(norm.epsilon),
        bias(norm.bias),
        reduced(norm.reduced),
        quantised(norm.quantised),
        scales(norm.scales),
        scaling(norm.scaling),
        quantisedType(norm.quantisedType) {}
};

}  // namespace stretto::cuda
