// The Cuda backend for tokens that teams of threads keep in registers. Part of cuda.cuh.
//
// A block has its tokens in the lines where cuda_norm.cuh has them, and all of them in one epoch: ranks that
// cannot use this form, as their buffers are not aligned, exchange tokens with ranks that can. The teams of a
// block take its tokens in turns. Last in a block is a warp that exchanges the tags.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// A whole operation on tokens that teams of threads keep in registers: run() instead of begin(), an algorithm
// and end(), in one epoch.
template <typename Reducer, bool kPlain, int kRanks = 0>
class WholeTokensCuda : public Cuda<Reducer, WholeTokenFormat, kRanks> {
 public:
  using Base = Cuda<Reducer, WholeTokenFormat, kRanks>;
  using Base::Base;
  using Base::kWarp;

  template <bool twoShot>
  __device__ void run(const WholeTokens& all);

 private:
  using Token = WholeToken<Reducer, kPlain>;
  using Packs = typename Token::Packs;
  using Part = LinePart<WholeTokenFormat>;
  using Parts = Part[WholeTokens::kPacks];

  __device__ static void find(Parts& parts, const Token& tokens, uint32_t packs, uint32_t index,
                              bool isThere);
  __device__ void exchange(const WholeTokens& all, uint32_t team, uint32_t first, uint32_t many);
  __device__ void deal(const WholeTokens& all, uint32_t team, uint32_t first, uint32_t many);
  template <int kLines>
  __device__ void take(int source, Phase phase, const Part (&parts)[kLines], int lane, Pack (&got)[kLines]);
  template <int kLines>
  __device__ void reduce(const Reducer& reducer, const Part (&parts)[kLines], const Pack (&own)[kLines],
                         int lane, Pack (&sum)[kLines]);
};

template <typename Reducer, bool kPlain, int kRanks>
template <bool twoShot>
__device__ void WholeTokensCuda<Reducer, kPlain, kRanks>::run(const WholeTokens& all) {
  this->prepare();
  const uint32_t first = static_cast<uint32_t>(this->channel_) * all.each;
  uint32_t team = 0;
  while (threadIdx.x >= (team + 1) * all.team) ++team;
  this->epoch_ += this->come();
  const uint32_t many = first < all.tokens ? std::min(all.each, all.tokens - first) : 0;
  if (many != 0) {
    this->nextEpoch();
    if (team >= all.teams) {
      this->exchangeTags(static_cast<int>(threadIdx.x % kWarp), kWarp);
    } else if constexpr (twoShot) {
      deal(all, team, first, many);
    } else {
      exchange(all, team, first, many);
    }
  }
  this->end();
}

// Of the token that has that index in the lines.
template <typename Reducer, bool kPlain, int kRanks>
__device__ void WholeTokensCuda<Reducer, kPlain, kRanks>::find(Parts& parts, const Token& tokens,
                                                               uint32_t packs, uint32_t index, bool isThere) {
#pragma unroll
  for (int turn = 0; turn < static_cast<int>(WholeTokens::kPacks); ++turn) {
    parts[turn] =
        tokenLine<WholeTokenFormat>(index * packs, tokens.pack(turn), isThere && tokens.isInside(turn));
  }
}

// One-shot. A team puts its next token before it waits for the lines of the one at hand: bytes leave while
// others come, and while sums are added.
template <typename Reducer, bool kPlain, int kRanks>
__device__ void WholeTokensCuda<Reducer, kPlain, kRanks>::exchange(const WholeTokens& all, uint32_t team,
                                                                   uint32_t first, uint32_t many) {
  Token tokens(all, this->shared_, team);
  const Reducer reducer(ReduceSpec{});
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const auto teams = static_cast<int32_t>(all.teams), last = static_cast<int32_t>(many);
  Packs own = {}, ahead = {};
  Parts parts;
  int32_t token = static_cast<int32_t>(team) - teams;  // before the first one there is none at hand
#pragma unroll 1
  do {
    const int32_t next = token + teams;
    tokens.load(ahead, all.input, first + static_cast<uint32_t>(next), next < last);
    find(parts, tokens, all.packs, static_cast<uint32_t>(next), next < last);
    for (int step = 1; step < this->ranks(); ++step)
      this->putBatch(this->linesAt(step, Phase::kScatter), 0, ahead, parts, lane);
    if (token >= 0) {
      const bool isThere = token < last;
      typename Token::Given given;
      Packs sum = {};
      tokens.load(given, first + static_cast<uint32_t>(token), isThere);
      find(parts, tokens, all.packs, static_cast<uint32_t>(token), isThere);
      reduce(reducer, parts, own, lane, sum);
      tokens.finish(first + static_cast<uint32_t>(token), isThere, sum, given);
    }
#pragma unroll
    for (int turn = 0; turn < Token::kPacks; ++turn) own[turn] = ahead[turn];
    token = next;
  } while (token < last);
}

// Two-shot: each rank has its share of the tokens. A share of none is told by an empty line.
template <typename Reducer, bool kPlain, int kRanks>
__device__ void WholeTokensCuda<Reducer, kPlain, kRanks>::deal(const WholeTokens& all, uint32_t team,
                                                               uint32_t first, uint32_t many) {
  Token tokens(all, this->shared_, team);
  const Reducer reducer(ReduceSpec{});
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const auto owners = static_cast<uint32_t>(this->ranks());
  const uint32_t most = (many + owners - 1) / owners, teams = all.teams;
  const auto begin = [&](int owner) { return std::min(many, static_cast<uint32_t>(owner) * most); };
  Parts parts;
  // The team's part of a share, of which the first of all tells that there is none.
  const auto findShare = [&](int owner, uint32_t index) {
    const uint32_t share = std::min(most, many - begin(owner));
    find(parts, tokens, all.packs, index, index < share);
    if (share == 0 && threadIdx.x == 0) parts[0] = tokenLine<WholeTokenFormat>(0, 0, true);
    return share;
  };
#pragma unroll 1
  for (int step = 1; step < this->ranks(); ++step) {
    const int owner = this->peerAt(step);
    uint32_t index = team, share;
#pragma unroll 1
    do {
      Packs given = {};
      share = findShare(owner, index);
      tokens.load(given, all.input, first + begin(owner) + index, index < share);
      this->putBatch(this->linesAt(step, Phase::kScatter), 0, given, parts, lane);
    } while ((index += teams) < share);
  }
#pragma unroll 1
  for (int step = 0; step < this->ranks(); ++step) {
    const int owner = step == 0 ? this->rank() : this->peerAt(this->ranks() - step);
    uint32_t index = team, share;
#pragma unroll 1
    do {
      Packs own = {}, sum = {};
      typename Token::Given given;
      share = findShare(owner, index);
      const uint32_t token = first + begin(owner) + index;
      const bool isThere = index < share;
      tokens.load(own, all.input, token, isThere && step == 0);
      tokens.load(given, token, isThere);
      if (step == 0) {
        reduce(reducer, parts, own, lane, sum);
#pragma unroll 1
        for (int to = 1; to < this->ranks() && !this->failed_; ++to)
          this->putBatch(this->linesAt(to, Phase::kGather), 0, sum, parts, lane);
      } else {
        take(owner, Phase::kGather, parts, lane, sum);
      }
      tokens.finish(token, isThere, sum, given);
    } while ((index += teams) < share);
  }
}

template <typename Reducer, bool kPlain, int kRanks>
template <int kLines>
__device__ void WholeTokensCuda<Reducer, kPlain, kRanks>::take(int source, Phase phase,
                                                               const Part (&parts)[kLines], int lane,
                                                               Pack (&got)[kLines]) {
  const std::byte* const lines[1] = {this->linesOf(this->rank(), phase, source)};
  Pack taken[1][kLines] = {};
  if (!this->awaitParts(taken, lines, 0, source, parts, lane)) return;
  this->eraseBatch(source, phase, parts);
#pragma unroll
  for (int i = 0; i < kLines; ++i) got[i] = taken[0][i];
}

// Of two ranks the sum is the same in either order.
template <typename Reducer, bool kPlain, int kRanks>
template <int kLines>
__device__ void WholeTokensCuda<Reducer, kPlain, kRanks>::reduce(const Reducer& reducer,
                                                                 const Part (&parts)[kLines],
                                                                 const Pack (&own)[kLines], int lane,
                                                                 Pack (&sum)[kLines]) {
  if constexpr (kRanks != 2) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const Part part[1] = {parts[i]};
      const Pack mine[1] = {own[i]};
      this->template reduceBatch<1, Base::kTokenSources>(reducer, part, mine, lane,
                                                         [&](const auto& result) { sum[i] = result[0]; });
    }
  } else {
    Pack got[kLines] = {};
    take(this->peerAt(1), Phase::kScatter, parts, lane, got);
#pragma unroll
    for (int i = 0; i < kLines; ++i) sum[i] = NormMath<Reducer>::sumOf(own[i], got[i]);
  }
}

}  // namespace stretto::cuda
