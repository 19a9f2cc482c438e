// The verbs of the Cuda backend for tokens in Lamport lines. Part of cuda.cuh.
//
// Thread t of a block has the same packs of every token: t, t + T, ... It puts them, and it reads and erases
// those of the peers, so that a token's input may lie where its results go.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// Of one source.
template <typename Reducer, typename Format, int kRanks>
__device__ size_t Cuda<Reducer, Format, kRanks>::tokensInLines(const Arguments& a) const requires(kNorms) {
  return static_cast<uint32_t>(lineBytes() / Format::kLineBytes) / linesForBytes<Format>(a.tokenBytes());
}

// Several loads are under way together.
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::shareTokens(Coop coop, const Arguments& a,
                                                           TokenRun tokens) requires(kNorms) {
  constexpr uint32_t kAtOnce = 4;
  const uint32_t lines = linesForBytes<Format>(a.tokenBytes());
  const auto step = static_cast<uint32_t>(coop.size());
  for (uint32_t i = 0; i < static_cast<uint32_t>(tokens.many); ++i) {
    const UnitSource source = tokenOf(a, tokens.first + i);
    for (auto first = static_cast<uint32_t>(coop.rank()); first < lines; first += kAtOnce * step) {
      Pack own[kAtOnce];
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j * step < lines) own[j] = source.loadPair(2 * (first + j * step));
      }
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        const uint32_t at = (i * lines + first + j * step) * static_cast<uint32_t>(Format::kLineBytes);
        if (first + j * step >= lines) break;
        for (int peer = 1; peer < ranks(); ++peer) {
          storeRelaxed(linesAt(peer, Phase::kScatter) + at, Format::sendable(own[j]));
        }
      }
    }
  }
}

template <typename Reducer, typename Format, int kRanks>
template <typename Share>
__device__ void Cuda<Reducer, Format, kRanks>::dealTokens(Coop coop, const Arguments& a,
                                                          Share share) requires(kNorms) {
  const uint32_t lines = linesForBytes<Format>(a.tokenBytes());
  for (int step = 1; step < ranks(); ++step) {
    const TokenRun tokens = share(peerAt(step));
    std::byte* const to = linesAt(step, Phase::kScatter);
    if (tokens.many == 0 && coop.rank() == 0) storeRelaxed(to, Pack{});
    for (uint32_t i = 0; i < static_cast<uint32_t>(tokens.many); ++i) {
      const UnitSource source = tokenOf(a, tokens.first + i);
      for (auto pack = static_cast<uint32_t>(coop.rank()); pack < lines;
           pack += static_cast<uint32_t>(coop.size())) {
        storeRelaxed(to + (i * lines + pack) * static_cast<uint32_t>(Format::kLineBytes),
                     Format::sendable(source.loadPair(2 * pack)));
      }
    }
  }
}

// sumOf(sums, source, parts): of lines, of which `source` is this rank's own; nothing where there is no
// token.
template <typename Reducer, typename Format, int kRanks>
template <typename SumOf>
__device__ void Cuda<Reducer, Format, kRanks>::addNormBy(Coop coop, const Arguments& a, TokenRun tokens,
                                                         SumOf sumOf) {
  TokenNorm<Reducer, kTokenLines> norm(a, shared_, coop);
  TokenParts parts;
  for (uint32_t i = 0; i < static_cast<uint32_t>(tokens.many); ++i) {
    const UnitSource source = tokenOf(a, tokens.first + i);
    norm.run(firstToken_ + tokens.first + i, [&](auto& sums, auto at, auto isThere) {
#pragma unroll
      for (int turn = 0; turn < kTokenLines; ++turn)
        parts[turn] = tokenLine<Format>(i * norm.packs(), at(turn), isThere(turn));
      sumOf(sums, source, parts);
    });
  }
  if (tokens.many == 0 && coop.rank() < kWarp) {
    Pack none[kTokenLines];
#pragma unroll
    for (int turn = 0; turn < kTokenLines; ++turn)
      parts[turn] = tokenLine<Format>(0, 0, turn == 0 && coop.rank() == 0);
    sumOf(none, UnitSource(nullptr, 0), parts);
  }
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::addNorm(Coop coop, const Arguments& a, TokenRun tokens,
                                                       bool sends) requires(kNorms) {
  const Reducer reducer(a.reduce);
  const int lane = coop.rank() % kWarp;
  addNormBy(coop, a, tokens, [&](auto& sums, const UnitSource& source, const TokenParts& parts) {
    Pack own[kTokenLines] = {};
#pragma unroll
    for (int turn = 0; turn < kTokenLines; ++turn) {
      if (parts[turn].inside) own[turn] = source.loadPair(parts[turn].unit);
    }
    reduceBatch<kTokenLines, kTokenSources>(reducer, parts, own, lane, [&](const auto& result) {
      for (int step = 1; sends && step < ranks(); ++step) {
        putBatch(linesAt(step, Phase::kGather), lineFlag(), result, parts, lane);
      }
#pragma unroll
      for (int turn = 0; turn < kTokenLines; ++turn) sums[turn] = result[turn];
    });
  });
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::addNormOf(Coop coop, const Arguments& a, TokenRun tokens,
                                                         int owner) requires(kNorms) {
  const std::byte* const lines[1] = {linesOf(rank(), Phase::kGather, owner)};
  addNormBy(coop, a, tokens, [&](auto& sums, const UnitSource&, const TokenParts& parts) {
    Pack got[1][kTokenLines] = {};
    if (awaitParts(got, lines, lineFlag(), owner, parts, coop.rank() % kWarp)) {
      eraseBatch(owner, Phase::kGather, parts);
    }
#pragma unroll
    for (int turn = 0; turn < kTokenLines; ++turn) sums[turn] = got[0][turn];
  });
}

// Every thread of the block comes here, also those that exchange the tags of its first chunk. Between two
// chunks all meet: then all lines of the one have been read, and a fence puts the erasing before the lines of
// the other, as where a kernel has ended in between (cuda_stages.cuh).
template <typename Reducer, typename Format, int kRanks>
template <typename... Stages>
__device__ Status Cuda<Reducer, Format, kRanks>::pipelineOfTokens(size_t chunks, Stages... stages) {
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk != 0) {
      if (anyThread(0, static_cast<int>(blockDim.x), failed_)) return Status{Code::kRemote};
      fenceSystemByWarp();
    }
    nextEpoch();
    if (coop_.rank() < coop_.size()) {
      ((void)stages(chunk), ...);
    } else if (chunk == 0) {
      exchangeTags(coop_.rank() - coop_.size(), kWarp);
    }
  }
  return failed_ ? Status{Code::kRemote} : Status{};
}

}  // namespace stretto::cuda
