// What an all-reduce with residual add and RMSNorm does on a GPU with one token whose parts have come, with
// the bits of the Host backend (primitives/host/norm.hpp says which). For the verbs of the Cuda backend and
// for kernels.
//
// The threads of a coop have a pack of a token each, T at a time:
//   1. sum, residual and bias are added; the result is stored, and kept in shared memory;
//   2. one thread for each of the running sums goes through what is kept: element i belongs to sum i modulo
//      the elements of 128 bytes, so a warp reads a group of 128 bytes at once. This order is what makes the
//      bits those of the host. Its additions follow one another, 4 cycles each, 64 of them for 8 KB; the
//      loads do not, and are under way many at a time;
//   3. every warp adds these sums pairwise, and normalises what its threads have kept.
// Of a token of which each thread has few packs, gamma is loaded while the sums are added. Of a token that is
// larger than what is kept, all but the last part is read again from where it was stored.
#pragma once

#include "primitives/cuda/block.cuh"
#include "primitives/cuda/copy.cuh"
#include "primitives/cuda/reducer.cuh"
#include "primitives/norm.hpp"

namespace stretto::cuda {

// Of a block that normalises.
struct NormShared : BlockShared {
  static constexpr uint32_t kKept = 2048;  // packs: 32 KB
  static constexpr int kMostSums = 64;
  static constexpr int kMostWarps = 32;
  Pack kept[kKept];
  float sums[kMostSums];
  float largest[kMostWarps];
};

// What is computed of a token, wherever it is kept.
template <typename Reducer>
struct NormMath {
  using Elements = typename Reducer::Elements;
  using Values = typename Elements::Accumulators;
  static constexpr uint32_t kWarp = 32;
  static constexpr uint32_t kGroup = 128;
  static constexpr size_t kElement = Reducer::kElementBytes;
  static constexpr uint32_t kSums = kGroup / kElement;
  static constexpr uint32_t kInPack = sizeof(Pack) / kElement;
  using Bits = std::conditional_t<kElement == 4, uint32_t, uint16_t>;

  __device__ static Bits bitsAt(const std::byte* at) { return *reinterpret_cast<const Bits*>(at); }
  __device__ static float valueOf(Bits bits) { return Elements::decode(bits).value[0]; }
  __device__ static float ofLane(float value, uint32_t lane) {
    return as<float>(__shfl_sync(0xffffffffu, as<int>(value), static_cast<int>(lane)));
  }
  // Pairwise, by every warp: each of two threads that add each other's has the same.
  __device__ static float total(const float* sums) {
    const uint32_t lane = threadIdx.x % kWarp;
    float sum = sums[lane];
    if constexpr (kSums > kWarp) sum = add(sum, sums[lane + kWarp]);
#pragma unroll
    for (uint32_t half = kWarp / 2; half > 0; half /= 2) sum = add(sum, ofLane(sum, lane ^ half));
    return sum;
  }
  __device__ static Unit sumOf(Unit first, Unit second) {
    const Reducer reducer(ReduceSpec{});
    auto sum = reducer.start(first);
    reducer.join(sum, second);
    return Reducer::finishSum(sum);
  }
  __device__ static Pack sumOf(const Pack& first, const Pack& second) {
    return {sumOf(first.low, second.low), sumOf(first.high, second.high)};
  }
  __device__ static float factorOf(float squares, float hidden, float epsilon) {
    return divide(1.0f, squareRoot(add(divide(squares, hidden), epsilon)));
  }
  __device__ static Unit scaled(Unit unit, float factor, Unit gamma, bool hasGamma) {
    Values values = Elements::decode(unit);
    STRETTO_UNROLL
    for (int i = 0; i < Values::kCount; ++i) values.value[i] = multiply(values.value[i], factor);
    if (hasGamma) {
      values = eachOf(values, Elements::decode(gamma), [](float x, float y) { return multiply(x, y); });
    }
    return Elements::encode(values);
  }

  // ---- The 8-bit copy

  // Of magnitudes; a NaN is not larger than anything.
  __device__ static float largestIn(float most, Unit unit) {
    const Values values = Elements::decode(unit);
    STRETTO_UNROLL
    for (int i = 0; i < Values::kCount; ++i)
      most = larger(most, as<float>(as<uint32_t>(values.value[i]) & 0x7fffffffu));
    return most;
  }
  __device__ static float larger(float most, float value) {
    return value > most ? value : most;
  }
  // Of the threads of a warp.
  __device__ static float largestOfWarp(float mine) {
    for (uint32_t half = kWarp / 2; half > 0; half /= 2)
      mine = larger(mine, ofLane(mine, threadIdx.x % kWarp ^ half));
    return mine;
  }
  __device__ static float scaleOf(float largest, DataType quantised) {
    const float most = stretto::largestOf(quantised);
    const float least = divide(kLeastScale, most);
    const float scale = divide(largest, most);
    return scale < least ? least : scale;
  }

  template <typename Format>
  __device__ static uint32_t codesOf(Unit unit, float inverse) {
    const Values values = Elements::decode(unit);
    uint32_t codes = 0;
    STRETTO_UNROLL
    for (int i = 0; i < Values::kCount; i += 2) {
      codes |=
          encodePair<Format>({multiply(values.value[i], inverse), multiply(values.value[i + 1], inverse)})
          << (8 * i);
    }
    return codes;
  }
  template <typename Format>
  __device__ static Unit codesOf(Pack pack, float inverse) {
    return codesOf<Format>(pack.low, inverse) | Unit{codesOf<Format>(pack.high, inverse)} << (4 * kInPack);
  }
  __device__ static Unit codesOf(DataType quantised, Pack pack, float inverse) {
    return quantised == DataType::kFloat8e4m3 ? codesOf<numeric::Float8e4m3>(pack, inverse)
                                              : codesOf<numeric::Float8e5m2>(pack, inverse);
  }
};

// kAtOnce: packs of a thread, whose loads are under way together.
template <typename Reducer, int kAtOnce>
class TokenNorm {
 public:
  using Elements = typename Reducer::Elements;

  __device__ TokenNorm(const Arguments& a, NormShared& shared, const Threads& coop)
      : norm_(*a.norm),
        shared_(shared),
        coop_(coop),
        reducer_(ReduceSpec{a.reduce.type, Operator::kSum, 1}),
        bytes_(a.tokenBytes()),
        packs_(packsOf(bytes_)) {}

  static constexpr __device__ uint32_t packsOf(size_t bytes) {
    return static_cast<uint32_t>((bytes + sizeof(Pack) - 1) / sizeof(Pack));
  }
  __device__ uint32_t packs() const { return packs_; }
  __device__ size_t bytes() const { return bytes_; }

  // Whole warps: sumOf(sums, at, isThere) gives the sums over all ranks of the packs at(0), ... of the token,
  // where they are there.
  template <typename SumOf>
  __device__ void run(size_t token, SumOf sumOf) {
    const size_t offset = token * bytes_;
    const bool atOnce = packs_ <= kAtOnce * threads() && norm_.scaling == Scaling::kNone;
    Pack gamma[kAtOnce];
    float running = 0;
    uint32_t first = 0;
    while (true) {
      const uint32_t behind = std::min(first + NormShared::kKept, inGroups());
      for (uint32_t base = first + warpBegin(); base < behind; base += kAtOnce * threads()) {
        addPacks(offset, base + lane(), first, behind, sumOf);
      }
      loadOwn(sourceOf(atOnce && norms() ? norm_.gamma : nullptr, 0), gamma);
      const bool isLast = behind == inGroups();
      if (norms()) {
        coop_.sync();
        running = chained(running, behind - first);
        if (isLast && thread() < kSums) shared_.sums[thread()] = running;
        coop_.sync();
      }
      if (isLast) break;
      first = behind;
    }
    if (!norms()) return;
    const float factor =
        Math::factorOf(Math::total(shared_.sums), static_cast<float>(norm_.hidden), norm_.epsilon);
    if (atOnce) return storeOwn(targetOf(norm_.normalised, offset), gamma, factor);
    normalise(token, offset, first, factor);
    // Then threads have other packs than those that they kept, which the next token's would
    // overwrite.
    if (first != 0) coop_.sync();
  }

 private:
  using Math = NormMath<Reducer>;
  using Values = typename Math::Values;
  static constexpr uint32_t kWarp = Math::kWarp;
  static constexpr uint32_t kGroup = Math::kGroup;
  static constexpr uint32_t kGroupPacks = kGroup / sizeof(Pack);
  static constexpr size_t kElement = Math::kElement;
  static constexpr uint32_t kSums = Math::kSums;
  static constexpr uint32_t kInPack = Math::kInPack;

  __device__ uint32_t thread() const { return static_cast<uint32_t>(coop_.rank()); }
  __device__ uint32_t threads() const { return static_cast<uint32_t>(coop_.size()); }
  __device__ uint32_t lane() const { return thread() % kWarp; }
  __device__ uint32_t warpBegin() const { return thread() - lane(); }
  // Packs up to the end of the token's last group.
  __device__ uint32_t inGroups() const { return (packs_ + kGroupPacks - 1) / kGroupPacks * kGroupPacks; }
  __device__ bool norms() const { return norm_.normalised != nullptr || norm_.scaling != Scaling::kNone; }

  // Of a token, as units; of nothing where there is none.
  __device__ UnitSource sourceOf(const std::byte* tokens, size_t offset) const {
    return {tokens + offset, tokens == nullptr ? 0 : bytes_};
  }
  // What lies behind the token's end becomes 0.
  __device__ Pack inside(Pack pack, uint32_t at) const {
    const size_t begin = size_t{at} * sizeof(Pack);
    if (begin + sizeof(Pack) <= bytes_) return pack;
    const size_t rest = begin < bytes_ ? bytes_ - begin : 0;
    const auto part = [](Unit unit, size_t bytes) {
      return bytes >= kUnitBytes ? unit : unit & ((Unit{1} << (8 * bytes)) - 1);
    };
    return {part(pack.low, rest), part(pack.high, rest < kUnitBytes ? 0 : rest - kUnitBytes)};
  }

  // Packs of this thread, one for each of its turns, whose loads are under way together.
  template <typename SumOf>
  __device__ void addPacks(size_t offset, uint32_t pack, uint32_t first, uint32_t behind, SumOf sumOf) {
    const UnitSource residuals = sourceOf(norm_.residual, offset), biases = sourceOf(norm_.bias, 0);
    const auto at = [&](int turn) { return pack + static_cast<uint32_t>(turn) * threads(); };
    const auto isThere = [&](int turn) { return at(turn) < std::min(behind, packs_); };
    Pack residual[kAtOnce] = {}, sum[kAtOnce] = {};
#pragma unroll
    for (int turn = 0; turn < kAtOnce; ++turn) {
      if (isThere(turn) && norm_.residual != nullptr) residual[turn] = residuals.loadPair(2 * at(turn));
    }
    sumOf(sum, at, isThere);
#pragma unroll
    for (int turn = 0; turn < kAtOnce; ++turn) {
      Pack bias{}, added = sum[turn];
      if (isThere(turn) && norm_.bias != nullptr) bias = biases.loadPair(2 * at(turn));
      if (norm_.residual != nullptr || norm_.bias != nullptr) {
        added = {addends(added.low, residual[turn].low, bias.low),
                 addends(added.high, residual[turn].high, bias.high)};
      }
      if (isThere(turn)) {
        if (norm_.reduced != nullptr) targetOf(norm_.reduced, offset).storePair(2 * at(turn), sum[turn]);
        targetOf(norm_.residualOut, offset).storePair(2 * at(turn), added);
      }
      if (at(turn) < behind) shared_.kept[at(turn) - first] = inside(added, at(turn));
    }
  }
  __device__ UnitTarget targetOf(std::byte* tokens, size_t offset) const {
    return {tokens + offset, bytes_};
  }
  __device__ Unit addends(Unit sum, Unit residual, Unit bias) const {
    auto all = reducer_.start(sum);
    if (norm_.residual != nullptr) reducer_.join(all, residual);
    if (norm_.bias != nullptr) reducer_.join(all, bias);
    return Reducer::finishSum(all);
  }

  // Of one running sum for each of the first threads: with what is kept, whole groups.
  __device__ float chained(float running, uint32_t packs) const {
    constexpr uint32_t kMany = 16;
    if (thread() >= kSums) return running;
    const auto* kept = reinterpret_cast<const std::byte*>(shared_.kept) + thread() * kElement;
    uint32_t groups = packs / kGroupPacks;
    for (; groups >= kMany; groups -= kMany, kept += kMany * kGroup)
      running = chainedOf<kMany>(running, kept);
    for (; groups > 0; --groups, kept += kGroup) running = chainedOf<1>(running, kept);
    return running;
  }
  template <uint32_t kMany>
  __device__ static float chainedOf(float running, const std::byte* kept) {
    float squares[kMany];
#pragma unroll
    for (uint32_t i = 0; i < kMany; ++i) {
      const float value = Math::valueOf(Math::bitsAt(kept + i * kGroup));
      squares[i] = multiply(value, value);
    }
#pragma unroll
    for (uint32_t i = 0; i < kMany; ++i) running = add(running, squares[i]);
    return running;
  }
  __device__ Unit scaled(Unit unit, float factor, Unit gamma) const {
    return Math::scaled(unit, factor, gamma, norm_.gamma != nullptr);
  }

  // Packs of a token that all threads have at once.
  __device__ uint32_t ownPack(int turn) const {
    return thread() + static_cast<uint32_t>(turn) * threads();
  }
  __device__ void loadOwn(const UnitSource& source, Pack (&packs)[kAtOnce]) const {
#pragma unroll
    for (int turn = 0; turn < kAtOnce; ++turn) packs[turn] = source.loadPair(2 * ownPack(turn));
  }
  __device__ void storeOwn(const UnitTarget& target, const Pack (&gamma)[kAtOnce], float factor) const {
#pragma unroll
    for (int turn = 0; turn < kAtOnce; ++turn) {
      const Pack& added = shared_.kept[ownPack(turn) % NormShared::kKept];
      target.storePair(2 * ownPack(turn), {scaled(added.low, factor, gamma[turn].low),
                                           scaled(added.high, factor, gamma[turn].high)});
    }
  }

  // `first`: the first pack that is kept.
  __device__ void normalise(size_t token, size_t offset, uint32_t first, float factor) {
    const UnitSource added = sourceOf(norm_.residualOut, offset);
    const UnitSource gamma = sourceOf(norm_.gamma, 0);
    const auto normalised = [&](uint32_t pack) {
      const Pack from = pack >= first ? shared_.kept[pack - first] : added.loadPair(2 * pack);
      const Pack weight = norm_.gamma == nullptr ? Pack{} : gamma.loadPair(2 * pack);
      return inside({scaled(from.low, factor, weight.low), scaled(from.high, factor, weight.high)}, pack);
    };
    const bool perToken = norm_.scaling == Scaling::kPerToken;
    float scale = norm_.scaling == Scaling::kPerTensor ? norm_.scales[0] : 0;
    if (norm_.normalised != nullptr || perToken) {
      float largest = 0;
      for (uint32_t pack = thread(); pack < packs_; pack += threads()) {
        const Pack result = normalised(pack);
        if (norm_.normalised != nullptr) targetOf(norm_.normalised, offset).storePair(2 * pack, result);
        if (perToken) largest = Math::largestIn(Math::largestIn(largest, result.low), result.high);
        if (norm_.scaling == Scaling::kPerTensor) quantise(token, pack, result, divide(1.0f, scale));
      }
      if (!perToken) return;
      scale = Math::scaleOf(largestOf(largest), norm_.quantisedType);
      if (thread() == 0) norm_.scales[token] = scale;
    }
    const float inverse = divide(1.0f, scale);
    for (uint32_t pack = thread(); pack < packs_; pack += threads()) {
      quantise(token, pack, normalised(pack), inverse);
    }
  }

  // Of all threads. Whole warps.
  __device__ float largestOf(float mine) {
    mine = Math::largestOfWarp(mine);
    if (lane() == 0) shared_.largest[thread() / kWarp] = mine;
    coop_.sync();
    for (uint32_t warp = 0; warp < threads() / kWarp; ++warp)
      mine = Math::larger(mine, shared_.largest[warp]);
    return mine;
  }
  __device__ void quantise(size_t token, uint32_t pack, Pack normalised, float inverse) {
    const Unit codes = Math::codesOf(norm_.quantisedType, normalised, inverse);
    const size_t at = size_t{pack} * kInPack;
    setOddUnit(norm_.quantised + token * norm_.hidden + at, codes,
               static_cast<unsigned>(std::min<size_t>(kInPack, norm_.hidden - at)));
  }

  const NormArguments& norm_;
  NormShared& shared_;
  const Threads coop_;
  const Reducer reducer_;
  const size_t bytes_;
  const uint32_t packs_;
};

}  // namespace stretto::cuda
