// One kernel for each algorithm, protocol and reducer: every block runs the algorithm on its share of the
// elements. For kernels_*.cu.
#pragma once

#include "algorithms/rows.hpp"
#include "executors/cuda/kernels.hpp"
#include "primitives/cuda/cuda.cuh"

namespace stretto::executors::cuda {

using stretto::cuda::AnyReducer;
using stretto::cuda::BlockShared;
using stretto::cuda::Context;
using stretto::cuda::Cuda;
using stretto::cuda::ShortLines;
using stretto::cuda::WideLines;

// What one block does of an operation: a run of elements, of every block of the buffers. Empty for blocks
// that come too late, and then on every rank.
__device__ inline Arguments shareOf(const Arguments& all, unsigned block, unsigned blocks) {
  constexpr size_t kGrainBytes = 128;
  Arguments mine = all;
  const algorithms::Split split(all.count, blocks, std::max<size_t>(1, kGrainBytes / all.elementBytes));
  const algorithms::Span span = split[block];
  mine.stride = all.stride != 0 ? all.stride : all.count;
  mine.count = span.size;
  if (mine.send != nullptr) mine.send += span.begin * all.elementBytes;
  if (mine.receive != nullptr) mine.receive += span.begin * all.elementBytes;
  return mine;
}

template <typename Code, typename Reducer, typename Format, bool links, int mostThreads>
__global__ void __launch_bounds__(mostThreads)
    collective(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments) {
  __shared__ BlockShared shared;
  stretto::cuda::letNextBegin();
  Cuda<Reducer, Format> backend(context, shared, static_cast<int>(blockIdx.x));
  const Arguments mine = shareOf(arguments, blockIdx.x, gridDim.x);
  backend.begin();
  if constexpr (links) backend.beginLinks();
  if (mine.count != 0) (void)Code::run(backend, mine);  // what goes wrong is in Control
  if constexpr (links) backend.endLinks();
  backend.end();
}

constexpr bool usesLinks(algorithms::Algorithm algorithm) {
  using A = algorithms::Algorithm;
  return algorithm == A::kRing || algorithm == A::kTree || algorithm == A::kChain || algorithm == A::kFlat ||
         algorithm == A::kPairwise;
}

// Of a block, at most. With more there are too few registers to keep loads under way.
inline constexpr int kLineThreads = 512;
inline constexpr int kChunkThreads = 512;

template <typename Row, typename Reducer>
void addRow(KernelTable& table, KernelTable::Kind kind) {
  using P = algorithms::Protocol;
  if constexpr (Row::kProtocol == P::kLines) {
    table.add(Row::kCollective, Row::kAlgorithm, P::kLines, kind,
              {reinterpret_cast<const void*>(
                   collective<typename Row::Code, Reducer, ShortLines, false, kLineThreads>),
               kLineThreads});
    table.add(Row::kCollective, Row::kAlgorithm, P::kWide, kind,
              {reinterpret_cast<const void*>(
                   collective<typename Row::Code, Reducer, WideLines, false, kLineThreads>),
               kLineThreads});
  } else {
    constexpr bool kLinks = usesLinks(Row::kAlgorithm);
    table.add(Row::kCollective, Row::kAlgorithm, P::kChunks, kind,
              {reinterpret_cast<const void*>(
                   collective<typename Row::Code, Reducer, ShortLines, kLinks, kChunkThreads>),
               kChunkThreads});
  }
}

// The rows that reduce, or those that do not.
template <bool reducing, typename Reducer, typename... Rows>
void addRows(KernelTable& table, KernelTable::Kind kind, std::tuple<Rows...>) {
  const auto add = [&]<typename Row>() {
    if constexpr (reduces(Row::kCollective) == reducing) addRow<Row, Reducer>(table, kind);
  };
  (add.template operator()<Rows>(), ...);
}

template <bool reducing, typename Reducer>
void addRows(KernelTable& table, KernelTable::Kind kind) {
  addRows<reducing, Reducer>(table, kind, algorithms::PortableRows{});
}

}  // namespace stretto::executors::cuda
