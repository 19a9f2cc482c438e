// One kernel for each algorithm, protocol and reducer: every block runs the algorithm on its share of the
// elements. For kernels_*.cu.
#pragma once

#include "algorithms/rows.hpp"
#include "executors/cuda/kernels.hpp"
#include "primitives/cuda/cuda.cuh"

namespace stretto::executors::cuda {

using stretto::cuda::AnyReducer;
using stretto::cuda::BareLines;
using stretto::cuda::BlockShared;
using stretto::cuda::Context;
using stretto::cuda::Cuda;
using stretto::cuda::ManyBareLines;
using stretto::cuda::RunLines;
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

// `blocksAtOnce`: how many fit on a multiprocessor. With two, the next operation's can wait there for the end
// of this one's.
template <typename Code, typename Backend, bool links, int mostThreads, int blocksAtOnce>
__global__ void __launch_bounds__(mostThreads, blocksAtOnce)
    collective(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments) {
  __shared__ BlockShared shared;
  stretto::cuda::letNextBegin();
  Backend backend(context, shared, static_cast<int>(blockIdx.x));
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

template <typename Code, typename Backend, bool links, int mostThreads, int blocksAtOnce>
Kernel kernelOf() {
  return {reinterpret_cast<const void*>(collective<Code, Backend, links, mostThreads, blocksAtOnce>),
          mostThreads};
}

// Lines are for latency: a kernel of its own for two ranks, and room for the next one.
template <typename Row, typename Reducer, typename Format>
void addLines(KernelTable& table, algorithms::Protocol protocol, KernelTable::Kind kind) {
  using Code = typename Row::Code;
  // What branches by type, or copies, needs more registers than two full blocks leave each.
  constexpr int kBlocks = std::is_same_v<Reducer, AnyReducer> ? 1 : 2;
  table.add(Row::kCollective, Row::kAlgorithm, protocol, kind,
            kernelOf<Code, Cuda<Reducer, Format>, false, kLineThreads, 1>());
  table.addPair(Row::kCollective, Row::kAlgorithm, protocol, kind,
                kernelOf<Code, Cuda<Reducer, Format, 2>, false, kLineThreads, kBlocks>());
}

// Runs are for bandwidth: registers rather than room.
template <typename Row, typename Reducer>
void addRuns(KernelTable& table, KernelTable::Kind kind) {
  constexpr auto kProtocol = algorithms::Protocol::kRuns;
  using Code = typename Row::Code;
  table.add(Row::kCollective, Row::kAlgorithm, kProtocol, kind,
            kernelOf<Code, Cuda<Reducer, RunLines>, false, kChunkThreads, 1>());
  table.addPair(Row::kCollective, Row::kAlgorithm, kProtocol, kind,
                kernelOf<Code, Cuda<Reducer, RunLines, 2>, false, kChunkThreads, 1>());
}

template <typename Row, typename Reducer>
void addRow(KernelTable& table, KernelTable::Kind kind) {
  using P = algorithms::Protocol;
  if constexpr (Row::kProtocol == P::kLines) {
    addLines<Row, Reducer, ShortLines>(table, P::kLines, kind);
    addLines<Row, Reducer, WideLines>(table, P::kWide, kind);
    addRuns<Row, Reducer>(table, kind);
    constexpr bool kOneEpoch = Row::kCollective != Collective::kReduce;
    if constexpr (kOneEpoch && !std::is_same_v<Reducer, AnyReducer>) {
      addLines<Row, Reducer, BareLines>(table, P::kBare, kind);
      table.addLargePair(
          Row::kCollective, Row::kAlgorithm, P::kBare, kind,
          kernelOf<typename Row::Code, Cuda<Reducer, ManyBareLines, 2>, false, kLineThreads, 1>());
    }
  } else {
    table.add(Row::kCollective, Row::kAlgorithm, P::kChunks, kind,
              kernelOf<typename Row::Code, Cuda<Reducer, ShortLines>, usesLinks(Row::kAlgorithm),
                       kChunkThreads, 1>());
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
