// Element-wise reduction of several buffers into one or more, by the threads of a coop. The arithmetic is
// reducer.cuh's; this is the walk over memory. For primitives/cuda.
#pragma once

#include "primitives/backend.hpp"
#include "primitives/cuda/copy.cuh"
#include "primitives/cuda/reducer.cuh"

namespace stretto::cuda {

// How many packs of each source a thread holds at once.
template <typename Reducer>
inline constexpr int kReduceUnroll = 4;
template <>
inline constexpr int kReduceUnroll<AnyReducer> = 1;

// And of how many sources.
template <typename Reducer>
inline constexpr int kSourcesAtOnce = 4;
template <>
inline constexpr int kSourcesAtOnce<AnyReducer> = 1;

// Of two sources.
template <typename Reducer>
__device__ __forceinline__ Pack sumOf(const Reducer& reducer, const Pack& first, const Pack& second) {
  auto low = reducer.start(first.low), high = reducer.start(first.high);
  reducer.join(low, second.low);
  reducer.join(high, second.high);
  return {reducer.finish(low), reducer.finish(high)};
}

// Where operands lie, as a function says it: in place of an array of pointers, which would be in local
// memory, half a kilobyte for each thread.
template <typename At>
struct Computed {
  At at;
  __device__ auto operator[](int index) const { return at(index); }
};
template <typename At>
Computed(At) -> Computed<At>;

// A part for each source, one behind the other, in everybody's window.
struct Parts {
  size_t begin;
  size_t stride;

  __device__ size_t at(int index) const { return begin + static_cast<size_t>(index) * stride; }
};

// As Destinations, of addresses that are computed.
template <typename Addresses>
struct Targets {
  std::byte* own;
  Addresses pushed;
  int pushedCount;
};
// C++20 asks for no guide here; clang before release 17 does.
template <typename Addresses>
Targets(std::byte*, Addresses, int) -> Targets<Addresses>;

// In all of what follows `to` is Destinations or Targets, and `sources` an array of pointers or Computed.

// One thread's packs at `at`, `at + step`, ..., below `packs`, of every source, reduced and stored
// everywhere. Loads of several sources are under way together.
template <int kPacks, typename Reducer, typename To, typename Sources>
__device__ __forceinline__ void reducePacks(const Reducer& reducer, const To& to, const Sources& sources,
                                            int sourceCount, size_t packs, size_t at, size_t step) {
  constexpr int kAtOnce = kSourcesAtOnce<Reducer>;
  const auto index = [&](int i) { return at + static_cast<size_t>(i) * step; };
  typename Reducer::Accumulator low[kPacks], high[kPacks];
  for (int first = 0; first < sourceCount; first += kAtOnce) {
    Pack loaded[kAtOnce][kPacks] = {};
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= sourceCount) continue;
      const std::byte* const source = sources[first + s];
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (index(i) < packs) loaded[s][i] = loadPack(source + index(i) * sizeof(Pack));
      }
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= sourceCount) continue;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (first + s == 0) {
          low[i] = reducer.start(loaded[s][i].low);
          high[i] = reducer.start(loaded[s][i].high);
        } else {
          reducer.join(low[i], loaded[s][i].low);
          reducer.join(high[i], loaded[s][i].high);
        }
      }
    }
  }
  // One destination after the other: what goes to one peer leaves together.
  Pack result[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) result[i] = {reducer.finish(low[i]), reducer.finish(high[i])};
  for (int push = -1; push < to.pushedCount; ++push) {
    std::byte* const destination = push < 0 ? to.own : to.pushed[push];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (index(i) < packs) storePack(destination + index(i) * sizeof(Pack), result[i]);
    }
  }
}

// The same for two sources: more packs at once, since each is done with as soon as both are there.
template <int kPacks, typename Reducer, typename To, typename Sources>
__device__ __forceinline__ void reduceTwo(const Reducer& reducer, const To& to, const Sources& sources,
                                          size_t packs, size_t at, size_t step) {
  const auto offset = [&](int i) { return (at + static_cast<size_t>(i) * step) * sizeof(Pack); };
  Pack first[kPacks] = {}, second[kPacks] = {};
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (offset(i) < packs * sizeof(Pack)) first[i] = loadPack(sources[0] + offset(i));
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (offset(i) < packs * sizeof(Pack)) second[i] = loadPack(sources[1] + offset(i));
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (offset(i) >= packs * sizeof(Pack)) continue;
    const Pack result = sumOf(reducer, first[i], second[i]);
    storePack(to.own + offset(i), result);
    for (int push = 0; push < to.pushedCount; ++push) storePack(to.pushed[push] + offset(i), result);
  }
}

// Units `first`, `first + step`, ... of every source.
template <typename Reducer, typename To, typename Sources>
__device__ void reduceUnits(const Reducer& reducer, const To& to, const Sources& sources, int sourceCount,
                            size_t bytes, size_t first, size_t step) {
  for (size_t unit = first; unit * kUnitBytes < bytes; unit += step) {
    auto sum = reducer.start(UnitSource(sources[0], bytes).load(unit));
    for (int source = 1; source < sourceCount; ++source) {
      reducer.join(sum, UnitSource(sources[source], bytes).load(unit));
    }
    const Unit result = reducer.finish(sum);
    UnitTarget(to.own, bytes).store(unit, result);
    for (int push = 0; push < to.pushedCount; ++push) UnitTarget(to.pushed[push], bytes).store(unit, result);
  }
}

template <typename Reducer, typename To, typename Sources>
__device__ void reduceBytes(const Reducer& reducer, const To& to, const Sources& sources, int sourceCount,
                            size_t bytes, int thread, int threads) {
  constexpr int kUnroll = kReduceUnroll<Reducer>;
  bool aligned = isAligned(to.own, sizeof(Pack));
  for (int source = 0; source < sourceCount; ++source) {
    aligned = aligned && isAligned(sources[source], sizeof(Pack));
  }
  for (int push = 0; push < to.pushedCount; ++push) {
    aligned = aligned && isAligned(to.pushed[push], sizeof(Pack));
  }
  const size_t packs = aligned ? bytes / sizeof(Pack) : 0;
  const size_t step = static_cast<size_t>(threads);
  constexpr int kPairs = 2 * kUnroll;
  size_t at = static_cast<size_t>(thread);
  for (; sourceCount == 2 && at < packs; at += kPairs * step) {
    reduceTwo<kPairs>(reducer, to, sources, packs, at, step);
  }
  for (; at < packs; at += kUnroll * step) {
    reducePacks<kUnroll>(reducer, to, sources, sourceCount, packs, at, step);
  }
  if (packs * sizeof(Pack) != bytes) {
    const size_t first = packs * sizeof(Pack) / kUnitBytes + static_cast<size_t>(thread);
    reduceUnits(reducer, to, sources, sourceCount, bytes, first, step);
  }
}

}  // namespace stretto::cuda
