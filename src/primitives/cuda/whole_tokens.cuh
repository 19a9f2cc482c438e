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
  float largest[WholeTokens::kMostTeam / 32];  // of each warp's part of a token
};

// kPlain: of calls that are so (WholeTokens::isPlain()), without the code for any other.
template <typename Reducer, bool kPlain>
class WholeToken {
 public:
  static constexpr int kPacks = WholeTokens::kPacks;
  using Packs = Pack[kPacks];
  // What is needed beside a token's sum, and is loaded before that has come. Where registers are short, gamma
  // is loaded later, while squares are added.
  struct Given {
    Packs residual = {}, gamma = {}, bias = {};
    float scale = 1;
  };

  // `team`: of this thread, by its number in the block.
  __device__ WholeToken(const WholeTokens& all, WholeShared& shared, uint32_t team)
      : all_(all),
        team_{static_cast<int>(team * all.team), static_cast<int>(all.team), static_cast<int>(1 + team)},
        kept_(shared.kept + team * all.team * kPacks),
        sums_(shared.sums[team]),
        largest_(shared.largest + team * all.team / kWarp) {}

  __device__ uint32_t pack(int turn) const { return thread() + static_cast<uint32_t>(turn) * all_.team; }
  __device__ bool isInside(int turn) const { return pack(turn) < all_.packs; }

  // Of a token of all: nothing where there is none.
  __device__ void load(Packs& packs, const std::byte* tokens, uint32_t token, bool isThere) const {
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      if (isThere && isInside(turn)) packs[turn] = loadPack(tokens + placeOf(token, turn));
    }
  }
  __device__ void load(Given& given, uint32_t token, bool isThere) const {
    load(given.residual, all_.residual, token, isThere && has(all_.residual));
    if constexpr (kPlain) {
      load(given.gamma, all_.gamma, 0, isThere);
    } else {
      load(given.bias, all_.bias, 0, isThere && has(all_.bias));
      if (isThere && all_.scaling == Scaling::kPerTensor) given.scale = all_.scales[0];
    }
  }
  // By the whole team. Where there is no token, what is given is zeros.
  __device__ void finish(uint32_t token, bool isThere, const Packs& sum, Given& given) {
    Packs added;
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      added[turn] = addends(sum[turn], given.residual[turn], given.bias[turn]);
      kept_[pack(turn)] = added[turn];
    }
    if (!kPlain && all_.reduced != nullptr) store(all_.reduced, token, isThere, sum);
    store(all_.residualOut, token, isThere, added);
    if constexpr (!kPlain) {
      if (all_.normalised == nullptr && all_.scaling == Scaling::kNone) return;
      load(given.gamma, all_.gamma, 0, isThere && has(all_.gamma));
    }
    team_.sync();
    if (thread() < Math::kSums)
      sums_[thread()] = chained(isThere ? kPacks * all_.team : WholeShared::kBehind);
    team_.sync();
    const float factor = Math::factorOf(Math::total(sums_), all_.hidden, all_.epsilon);
    Packs normalised;
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      normalised[turn] = {Math::scaled(added[turn].low, factor, given.gamma[turn].low, has(all_.gamma)),
                          Math::scaled(added[turn].high, factor, given.gamma[turn].high, has(all_.gamma))};
    }
    if (has(all_.normalised)) store(all_.normalised, token, isThere, normalised);
    if constexpr (!kPlain) {
      if (all_.scaling != Scaling::kNone) quantise(token, isThere, normalised, given.scale);
    }
  }

 private:
  using Math = NormMath<Reducer>;
  static constexpr uint32_t kWarp = Math::kWarp;

  __device__ static bool has(const void* pointer) {
    return kPlain || pointer != nullptr;
  }
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
  // Nothing is added for what is not there: a zero would change the sign of another.
  __device__ Pack addends(const Pack& sum, const Pack& residual, const Pack& bias) const {
    if constexpr (kPlain) return Math::sumOf(sum, residual);
    if (all_.residual == nullptr && all_.bias == nullptr) return sum;
    const Reducer reducer(ReduceSpec{});
    auto low = reducer.start(sum.low), high = reducer.start(sum.high);
    const auto join = [&](const Pack& addend) {
      reducer.join(low, addend.low);
      reducer.join(high, addend.high);
    };
    if (all_.residual != nullptr) join(residual);
    if (all_.bias != nullptr) join(bias);
    return {Reducer::finishSum(low), Reducer::finishSum(high)};
  }
  // A token's packs have as many codes each: they lie where these can be stored at once, whatever a token's
  // length.
  __device__ void quantise(uint32_t token, bool isThere, const Packs& normalised, float scale) {
    if (all_.scaling == Scaling::kPerToken) {
      scale = Math::scaleOf(largestOf(normalised), all_.quantisedType);
      if (isThere && thread() == 0) all_.scales[token] = scale;
    }
    const float inverse = divide(1.0f, scale);
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn) {
      if (!isThere || !isInside(turn)) continue;
      const size_t at = size_t{token} * all_.packs + pack(turn);
      const Unit codes = Math::codesOf(all_.quantisedType, normalised[turn], inverse);
      if constexpr (Math::kInPack == kUnitBytes) {
        storeUnit(all_.quantised, at, codes);
      } else {
        reinterpret_cast<uint32_t*>(all_.quantised)[at] = static_cast<uint32_t>(codes);
      }
    }
  }
  // Of all elements. The team meets twice again before a thread writes here for the next token.
  __device__ float largestOf(const Packs& normalised) {
    const uint32_t lane = thread() % kWarp;
    float largest = 0;
#pragma unroll
    for (int turn = 0; turn < kPacks; ++turn)
      largest = Math::largestIn(Math::largestIn(largest, normalised[turn].low), normalised[turn].high);
    largest = Math::largestOfWarp(largest);
    if (lane == 0) largest_[thread() / kWarp] = largest;
    team_.sync();
    return Math::largestOfWarp(lane < all_.team / kWarp ? largest_[lane] : 0);
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
  float* const largest_;
};

}  // namespace stretto::cuda
