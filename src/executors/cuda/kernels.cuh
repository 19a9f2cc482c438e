// One kernel for each algorithm, protocol and reducer: every block runs the algorithm on its share of the
// elements. For kernels_*.cu.
#pragma once

#include <algorithm>
#include <bit>

#include "algorithms/rows.hpp"
#include "algorithms/shares.hpp"
#include "executors/cuda/kernels.hpp"
#include "primitives/cuda/cuda.cuh"

namespace stretto::executors::cuda {

using stretto::cuda::AnyReducer;
using stretto::cuda::BlockShared;
using stretto::cuda::Context;
using stretto::cuda::Cuda;
using stretto::cuda::LamportFormat;
using stretto::cuda::LinkChunkFormat;
using stretto::cuda::LL128Format;
using stretto::cuda::LLFormat;
using stretto::cuda::NormShared;
using stretto::cuda::Threads;
using stretto::cuda::TokenFormat;
using stretto::cuda::TokenNorm;
using stretto::cuda::WarpChunkFormat;
using stretto::cuda::WholeShared;
using stretto::cuda::WholeToken;
using stretto::cuda::WholeTokens;
using stretto::cuda::WholeTokensCuda;

// The elements that this thread block handles, of the thread blocks from `first` on (Arguments::largest says
// how they are cut): one range, at the same offset in each peer's part of the buffers. Thread blocks beyond
// the last range get none, on every rank alike. With `linkWarps` above 1, the elements of this warp.
// `elementBytes`: where a kernel knows them.
template <unsigned linkWarps = 1, size_t elementBytes = 0>
__device__ Arguments shareOf(const Arguments& all, unsigned first = 0) {
  Arguments mine = all;
  if constexpr (elementBytes != 0) mine.elementBytes = elementBytes;
  const auto split = algorithms::Split::ofEach(all.count, all.largest);
  constexpr unsigned kWarp = 32;
  const unsigned own = (blockIdx.x - first) * linkWarps;
  const algorithms::Span span = split[own + (linkWarps == 1 ? 0 : threadIdx.x / kWarp)];
  mine.stride = all.stride != 0 ? all.stride : all.count;
  mine.count = span.size;
  mine.largest = split[own].size;
  if (mine.send != nullptr) mine.send += span.begin * mine.elementBytes;
  if (mine.receive != nullptr) mine.receive += span.begin * mine.elementBytes;
  return mine;
}

// An all-reduce with RMSNorm: shares are whole tokens. Where a block's tokens lie is computed where it is
// used, from the parameters: nine addresses that are kept would be eighteen registers.
template <typename Code, typename Backend, int mostThreads>
__global__ void __launch_bounds__(mostThreads, 1)
    normed(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments,
           const __grid_constant__ NormArguments norm) {
  auto& shared = stretto::cuda::blockShared<typename Backend::Shared>();
  Backend backend(context, shared, static_cast<int>(blockIdx.x));
  Arguments mine = arguments;
  mine.elementBytes = Backend::kElementBytes;
  mine.norm = &norm;
  const size_t each = algorithms::TokenChunks::divided(arguments.largest, norm.hidden);
  mine.count = algorithms::Split::ofEach(arguments.count, arguments.largest)[blockIdx.x].size;
  backend.begin();
  backend.beginTokens(blockIdx.x * each);
  if (mine.count != 0) (void)Code::run(backend, mine);
  backend.end();
}

// Eleven warps: with one more there are 168 registers for each thread.
inline constexpr int kNormThreads = 352;

// By one rank, or after an all-reduce: the tokens are the sums. Blocks take them in turns; two packs of a
// thread are a token of 16 KB, whose loads are all under way together.
inline constexpr int kAloneThreads = 512;
template <typename Reducer>
__global__ void __launch_bounds__(kAloneThreads, 1)
    normAlone(const __grid_constant__ Context, const __grid_constant__ Arguments arguments,
              const __grid_constant__ NormArguments norm) {
  auto& shared = stretto::cuda::blockShared<NormShared>();
  Arguments all = arguments;
  all.norm = &norm;
  all.elementBytes = Reducer::kElementBytes;
  constexpr int kAtOnce = 2;
  TokenNorm<Reducer, kAtOnce> tokens(all, shared, Threads{0, static_cast<int>(blockDim.x), 0});
  stretto::cuda::awaitPrevious();
  stretto::cuda::letNextBegin();
  const size_t many = algorithms::TokenChunks::divided(all.count, norm.hidden);
  for (size_t token = blockIdx.x; token < many; token += gridDim.x) {
    const stretto::cuda::UnitSource sums(all.send + token * tokens.bytes(), tokens.bytes());
    tokens.run(token, [&](auto& packs, auto at, auto isThere) {
#pragma unroll
      for (int turn = 0; turn < kAtOnce; ++turn) {
        if (isThere(turn)) packs[turn] = sums.loadPair(2 * at(turn));
      }
    });
  }
}

// The same of tokens that a team of threads keeps in registers. Short: at each launch the code of a kernel is
// fetched again, 16 bytes for each instruction. Two blocks of up to 384 threads fit on a multiprocessor, so
// that those of the next kernel can be there before these have ended; of larger ones one does.
template <typename Backend, bool twoShot>
__global__ void __launch_bounds__(WholeTokens::kMostTeam + 32, 1)
    normedWhole(const __grid_constant__ Context context, const __grid_constant__ WholeTokens tokens) {
  auto& shared = stretto::cuda::blockShared<typename Backend::Shared>();
  Backend backend(context, shared, static_cast<int>(blockIdx.x));
  backend.template run<twoShot>(tokens);
}

// One team. Two blocks of a plain call fit on a multiprocessor.
template <typename Reducer, bool kPlain>
__global__ void __launch_bounds__(WholeTokens::kMostTeam, kPlain ? 2 : 1)
    normAloneWhole(const __grid_constant__ Context, const __grid_constant__ WholeTokens all) {
  auto& shared = stretto::cuda::blockShared<WholeShared>();
  WholeToken<Reducer, kPlain> tokens(all, shared, 0);
  stretto::cuda::awaitPrevious();
  stretto::cuda::letNextBegin();
#pragma unroll 1
  for (uint32_t token = blockIdx.x; token < all.tokens; token += gridDim.x) {
    typename WholeToken<Reducer, kPlain>::Packs sum = {};
    typename WholeToken<Reducer, kPlain>::Given given;
    tokens.load(sum, all.input, token, true);
    tokens.load(given, token, true);
    tokens.finish(token, true, sum, given);
  }
}

template <typename Code, typename Backend, int mostThreads>
__global__ void __launch_bounds__(mostThreads, 1)
    collective(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments) {
  auto& shared = stretto::cuda::blockShared<typename Backend::Shared>();
  Backend backend(context, shared, static_cast<int>(blockIdx.x));
  const Arguments mine = shareOf<Backend::kLinkWarps, Backend::kElementBytes>(arguments);
  if constexpr (Backend::kTurns) {
    backend.prepare();
  } else {
    backend.begin();
  }
  if constexpr (Backend::kLinks) backend.beginLinks();
  if (mine.largest != 0) (void)Code::run(backend, mine);  // what goes wrong is in Control
  if constexpr (Backend::kLinks) backend.endLinks();
  backend.end();
}

// Operations of a group side by side, each in channels of its own as `collective` would run it there; those
// that have a channel in common one after the other. Blocks do not wait for each other between two
// operations.
template <typename Code, typename Backend, int mostThreads>
__global__ void __launch_bounds__(mostThreads, 1)
    fused(const __grid_constant__ Context context, const __grid_constant__ Fused all) {
  auto& shared = stretto::cuda::blockShared<BlockShared>();
  Backend backend(context, shared, static_cast<int>(blockIdx.x));
  backend.begin();
  bool isFirst = true, over = false;
  for (uint32_t i = 0; i < all.count; ++i) {
    const Fused::Item& item = all.items[i];
    if (blockIdx.x - item.first >= item.blocks) continue;  // also those before, as numbers go round
    backend.take(item.called, i, item.first, isFirst);
    isFirst = false;
    const Arguments mine = shareOf<Backend::kLinkWarps, Backend::kElementBytes>(item.arguments, item.first);
    if (!over && mine.largest != 0) (void)Code::run(backend, mine);
    over = backend.leave();
  }
  backend.endAll(all.count);
}

// Of a block, at most. With more there are too few registers to keep loads under way; Lamport lines between
// two ranks need few.
inline constexpr int kLineThreads = 512;
inline constexpr int kChunkThreads = 512;
inline constexpr int kLinkThreads = 32 * LinkChunkFormat::kLinkWarps;

template <typename Code, typename Backend, int mostThreads, bool fuses = false>
Kernel kernelOf() {
  static_assert(Overlaps<Backend> && KeepsItsClaims<Backend> && algorithms::KeepsClaimsOfLinks<Backend>);
  Kernel kernel{collective<Code, Backend, mostThreads>, mostThreads, Backend::kLinkWarps};
  if constexpr (fuses) kernel.fused = fused<Code, Backend, std::min(mostThreads, Fused::kMostThreads)>;
  return kernel;
}

// The kernels of one row with one reducer.
template <typename Row, typename Reducer>
class RowKernels {
 public:
  RowKernels(KernelTable& table, KernelTable::Kind kind) : table_(table), kind_(kind) {}

  void addAll() {
    using P = algorithms::Protocol;
    if constexpr (Row::kCollective == Collective::kAllReduceAddRmsNorm) {
      if constexpr (!std::is_same_v<Reducer, AnyReducer>) addNorm();
    } else if constexpr (Row::kProtocol == P::kLL) {
      if constexpr (!kLamportServesAll) addLines<LLFormat>();
    } else if constexpr (Row::kProtocol == P::kLL128) {
      addLines<LL128Format>();
    } else if constexpr (Row::kProtocol == P::kWarpChunks) {
      addWarpChunks();
    } else if constexpr (Row::kProtocol == P::kLamport) {
      if constexpr (!std::is_same_v<Reducer, AnyReducer>) addLamport();
    } else {
      static_assert(algorithms::usesLinks(Row::kAlgorithm));
      add<Cuda<Reducer, LinkChunkFormat>, kLinkThreads>(Fit::kAny);
    }
  }

 private:
  using Fit = KernelTable::Fit;
  // Kernels for exactly two ranks are compiled where a plan can choose them. Not for two-shots, which are
  // refused between two ranks, where they save nothing (planner/model.cpp). Not for an all-reduce or a
  // reduce-scatter in LL, LL128 or warp chunks of a type that Lamport lines carry, as plans choose Lamport
  // there: if one of these is forced, the kernel for any number of ranks serves. Among more ranks, a two-shot
  // in LL of such a type is served by the kernel for any type.
  static constexpr bool kIsTwoShot = Row::kAlgorithm == algorithms::Algorithm::kTwoShot;
  static constexpr bool kHasLamport =
      !std::is_same_v<Reducer, AnyReducer> &&
      (Row::kCollective == Collective::kAllReduce || Row::kCollective == Collective::kReduceScatter);
  static constexpr bool kServesPairs = !kIsTwoShot && !kHasLamport;
  static constexpr bool kLamportServesAll = kIsTwoShot && kHasLamport;

  // What groups hold, in the kernels that small sizes are planned with: the other collectives come alone, and
  // warp chunks, Simple and two-shots among four ranks are for more bytes. Each takes a second to compile, a
  // tenth of the time of all. An all-gather in LL128 lines between two ranks would spill; it is chosen from
  // where operations are launched alone.
  static constexpr bool kFuses = Row::kCollective == Collective::kAllReduce ||
                                 Row::kCollective == Collective::kReduceScatter ||
                                 Row::kCollective == Collective::kAllGather;
  template <typename Format>
  static constexpr bool kFusesPairs =
      kFuses && !(Row::kCollective == Collective::kAllGather && Format::kLL128);

  template <typename Backend, int mostThreads, bool fuses = false>
  void add(Fit fit) {
    table_.add(Row::kCollective, Row::kAlgorithm, Row::kProtocol, kind_, fit,
               kernelOf<typename Row::Code, Backend, mostThreads, fuses>());
  }
  // One more warp exchanges the tags.
  void addNorm() {
    constexpr int kThreads = kNormThreads + 32;
    if constexpr (Row::kAlgorithm == algorithms::Algorithm::kLocal) {
      addNorm(Fit::kAny, {.mostThreads = kAloneThreads,
                          .normed = normAlone<Reducer>,
                          .plainWhole = normAloneWhole<Reducer, true>,
                          .anyWhole = normAloneWhole<Reducer, false>});
    } else {
      addNormOf<0, kThreads>(Fit::kAny);
    }
    if constexpr (Row::kAlgorithm == algorithms::Algorithm::kOneShot) addNormOf<2, kThreads>(Fit::kPair);
  }
  template <int kRanks, int mostThreads>
  void addNormOf(Fit fit) {
    static_assert(Overlaps<Cuda<Reducer, TokenFormat, kRanks>> &&
                  KeepsItsClaims<Cuda<Reducer, TokenFormat, kRanks>>);
    addNorm(fit, {.mostThreads = mostThreads,
                  .normed = normed<typename Row::Code, Cuda<Reducer, TokenFormat, kRanks>, mostThreads>,
                  .plainWhole = normedWhole<WholeTokensCuda<Reducer, true, kRanks>, kIsTwoShot>,
                  .anyWhole = normedWhole<WholeTokensCuda<Reducer, false, kRanks>, kIsTwoShot>});
  }
  void addNorm(Fit fit, const Kernel& kernel) {
    table_.add(Row::kCollective, Row::kAlgorithm, Row::kProtocol, kind_, fit, kernel);
  }
  // Lines are for latency: kernels for a known number of ranks.
  template <typename Format>
  void addLines() {
    add<Cuda<Reducer, Format>, kLineThreads, kFuses>(Fit::kAny);
    if constexpr (kServesPairs) {
      add<Cuda<Reducer, Format, 2>, kLineThreads, kFusesPairs<Format>>(Fit::kPair);
    }
  }
  void addLamport() {
    // If Cuda::Has lost one of these, algorithms would take a slower way, and nothing else would show it.
    static_assert(OneEpoch<Cuda<Reducer, LamportFormat>> && SharesLines<Cuda<Reducer, LamportFormat>> &&
                  FansLines<Cuda<Reducer, LamportFormat, 4>> && TakesTurns<Cuda<Reducer, LamportFormat, 2>>);
    add<Cuda<Reducer, LamportFormat>, kLineThreads, kFuses>(Fit::kAny);
    if constexpr (!kIsTwoShot) {
      add<Cuda<Reducer, LamportFormat, 2>, algorithms::kMostLamportThreads, kFuses>(Fit::kPair);
    }
    add<Cuda<Reducer, LamportFormat, 4>, kLineThreads, kFuses && !kIsTwoShot>(Fit::kFour);
    add<Cuda<Reducer, LamportFormat, 8>, kLineThreads / 2, kFuses>(Fit::kEight);
  }
  // Warp chunks are for bandwidth: registers rather than shared memory. Among several peers four warps a
  // stage have two chunks each in the shortest rings; more of them would wait for one another, and spill.
  void addWarpChunks() {
    constexpr int kThreads = (kIsTwoShot ? 3 : 2) * 128;
    // Between two ranks the warps of a stage share half a ring evenly (pipelineOfWarps), so their number is a
    // power of two, as that of the chunks is.
    static_assert(std::has_single_bit(static_cast<unsigned>(kChunkThreads / 2 / 32)));
    add<Cuda<Reducer, WarpChunkFormat>, kThreads>(Fit::kAny);
    if constexpr (kServesPairs) {
      add<Cuda<Reducer, WarpChunkFormat, 2>, kChunkThreads>(Fit::kPair);
    } else if constexpr (kIsTwoShot && !std::is_same_v<Reducer, AnyReducer>) {
      add<Cuda<Reducer, WarpChunkFormat, 4>, kThreads>(Fit::kFour);
    }
  }

  KernelTable& table_;
  KernelTable::Kind kind_;
};

// Has a kernel of its own: what one rank does alone is a copy, unless it normalises, and a norm apart comes
// after another row's kernel.
template <typename Row>
inline constexpr bool hasKernel =
    algorithms::hasCode<Row, algorithms::Device::kCuda> && !algorithms::isThenNorm<typename Row::Code> &&
    (Row::kAlgorithm != algorithms::Algorithm::kLocal ||
     Row::kCollective == Collective::kAllReduceAddRmsNorm);

// The rows that reduce, or those that do not.
template <bool reducing, typename Reducer, typename... Rows>
void addRows(KernelTable& table, KernelTable::Kind kind, std::tuple<Rows...>) {
  const auto add = [&]<typename Row>() {
    if constexpr (hasKernel<Row> && reduces(Row::kCollective) == reducing) {
      RowKernels<Row, Reducer>(table, kind).addAll();
    }
  };
  (add.template operator()<Rows>(), ...);
}

template <bool reducing, typename Reducer>
void addRows(KernelTable& table, KernelTable::Kind kind) {
  addRows<reducing, Reducer>(table, kind, algorithms::Rows{});
}

}  // namespace stretto::executors::cuda
