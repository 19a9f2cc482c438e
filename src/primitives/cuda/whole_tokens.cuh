// What a team of threads does with a token that it keeps in registers (whole_tokens.hpp): the residual is
// added, the token is normalised, and both are stored, with the bits of TokenNorm (norm.cuh). For the verbs
// of the Cuda backend and for kernels.
#pragma once

#include "primitives/cuda/norm.cuh"
#include "primitives/cuda/whole_tokens.hpp"

namespace stretto::cuda {

// Of a block whose teams have a token each. The running sums are added sixteen groups of 128 bytes at a time,
// and loaded as many before: the last loads are of what lies behind.
struct WholeShared : BlockShared {
  static constexpr uint32_t kAtOnce = 16;
  static constexpr uint32_t kBehind = kAtOnce * 128 / sizeof(Pack);
  Pack kept[WholeTokens::kMostTeam * WholeTokens::kPacks + kBehind];
  float sums[WholeTokens::kMostTeams][NormShared::kMostSums];
};

template <typename Reducer>
class WholeToken {
 public:
  static constexpr int kPacks = WholeTokens::kPacks;
  using Packs = Pack[kPacks];

  // `team`: of this thread, by its number in the block.
  __device__ WholeToken(const WholeTokens& all, WholeShared& shared, uint32_t team)
      : all_(all),
        team_{static_cast<int>(team * all.team), static_cast<int>(all.team), static_cast<int>(1 + team)},
        kept_(shared.kept + team * all.team * kPacks),
        sums_(shared.sums[team]) {}

  __device__ uint32_t pack(int turn) const { return thread() + static_cast<uint32_t>(turn) * all_.team; }
  __device__ bool isInside(int turn) const { return pack(turn) < all_.packs; }

  // Of a token of all: nothing where there is none.
  __device__ void load(Packs& packs, const std::byte* tokens, uint32_t token, bool isThere) const {
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      if (isThere && isInside(turn)) packs[turn] = loadPack(tokens + placeOf(token, turn));
    }
  }
  // By the whole team. Where there is no token, what is given is zeros.
  __device__ void finish(uint32_t token, bool isThere, const Packs& sum, const Packs& residual,
                         const Packs& gamma) {
    const Reducer reducer(ReduceSpec{});
    Packs added;
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      added[turn] = sumOf(reducer, sum[turn], residual[turn]);
      kept_[pack(turn)] = added[turn];
    }
    store(all_.residualOut, token, isThere, added);
    team_.sync();
    if (thread() < Math::kSums)
      sums_[thread()] = chained(isThere ? kPacks * all_.team : WholeShared::kBehind);
    team_.sync();
    const float factor = Math::factorOf(Math::total(sums_), all_.hidden, all_.epsilon);
    Packs normalised;
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      normalised[turn] = {Math::scaled(added[turn].low, factor, gamma[turn].low, true),
                          Math::scaled(added[turn].high, factor, gamma[turn].high, true)};
    }
    store(all_.normalised, token, isThere, normalised);
  }

 private:
  using Math = NormMath<Reducer>;

  __device__ uint32_t thread() const {
    return static_cast<uint32_t>(team_.rank());
  }
  __device__ size_t placeOf(uint32_t token, int turn) const {
    return (size_t{token} * all_.packs + pack(turn)) * sizeof(Pack);
  }
  __device__ void store(std::byte* tokens, uint32_t token, bool isThere, const Packs& packs) const {
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      if (isThere && isInside(turn)) storePack(tokens + placeOf(token, turn), packs[turn]);
    }
  }
  // One running sum, of so many packs. A value is replaced by the one sixteen groups later as soon as it has
  // been used, so that loads are under way while sums are added.
  __device__ float chained(uint32_t packs) const {
    constexpr uint32_t kAtOnce = WholeShared::kAtOnce;
    const auto* kept = reinterpret_cast<const std::byte*>(kept_) + thread() * Math::kElement;
    typename Math::Bits bits[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) bits[i] = Math::bitsAt(kept + i * Math::kGroup);
    float running = 0;
#pragma unroll 1
    for (; packs != 0; packs -= WholeShared::kBehind) {
      kept += kAtOnce * Math::kGroup;
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const float value = Math::valueOf(bits[i]);
        bits[i] = Math::bitsAt(kept + i * Math::kGroup);
        running = add(running, multiply(value, value));
      }
    }
    return running;
  }

  const WholeTokens& all_;
  const Threads team_;
  Pack* const kept_;
  float* const sums_;
};

// How many times a kernel goes through its code: the first time without any token, before the kernel before
// it has ended. So its instructions have been fetched when it begins, which would otherwise take a large part
// of its time. Compilers are kept from knowing the number: they would make two copies of the code.
__device__ inline uint32_t passesWithRehearsal() {
  uint32_t passes = 2;
  keepAtHand(passes);
  return passes;
}

}  // namespace stretto::cuda
