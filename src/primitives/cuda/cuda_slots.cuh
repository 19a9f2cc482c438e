// The verbs of the Cuda backend that reduce what lies in rows of slots. Part of cuda.cuh, as are the rows.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

template <typename Reducer, typename Format, int kRanks>
__device__ Row Cuda<Reducer, Format, kRanks>::slotRow(Leg leg) const {
  return {deepBegin_ + layout().slot(turn(), leg, 0), layout().slotBytes};
}

template <typename Reducer, typename Format, int kRanks>
__device__ auto Cuda<Reducer, Format, kRanks>::operandsIn(const Row& row, const std::byte* own) const {
  const std::byte* const here = window(rank());
  return Computed{
      [=, rank = rank()](int source) { return source == rank ? own : here + row.at(placeAt(rank, source)); }};
}

template <typename Reducer, typename Format, int kRanks>
__device__ auto Cuda<Reducer, Format, kRanks>::targetsIn(const Row& row, std::byte* to, int only) const {
  const Computed places{[=, this](int index) {
    const int peer = only < 0 ? peerAt(index + 1) : only;
    return window(peer) + row.at(placeAt(peer, rank()));
  }};
  int count = only < 0 ? ranks() - 1 : only == rank() ? 0 : 1;
  if (to == nullptr) to = places[--count];
  return Targets{to, places, count};
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::reduceSlots(Coop coop, const ReduceSpec& spec, std::byte* to,
                                                           const std::byte* own, size_t count) {
  reduceBytes(Reducer(spec), Destinations{to}, operandsIn(slotRow(Leg::kScatter), own), ranks(),
              count * sizeOf(spec.type), coop.rank(), coop.size());
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::reducePutSlots(Coop coop, const ReduceSpec& spec,
                                                              std::byte* to, const std::byte* own,
                                                              size_t count) {
  reduceBytes(Reducer(spec), targetsIn(slotRow(Leg::kGather), to), operandsIn(slotRow(Leg::kScatter), own),
              ranks(), count * sizeOf(spec.type), coop.rank(), coop.size());
}

}  // namespace stretto::cuda
