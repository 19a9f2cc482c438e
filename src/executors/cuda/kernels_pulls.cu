#include "executors/cuda/kernels.cuh"
#include "executors/cuda/pulls.hpp"

#include <cuda_runtime.h>

#include "algorithms/shares.hpp"
#include "platform/cuda/device.hpp"
#include "primitives/cuda/tiles.cuh"

namespace stretto::executors::cuda {
namespace {

using stretto::cuda::FixedReducer;
using stretto::cuda::Pack;
using stretto::cuda::TileShared;

// Every rank's block has come here; what its stream did before is visible to the others.
template <typename B>
__device__ Status meet(B& b, Leg leg) {
  algorithms::signalAll(b, leg);
  return algorithms::waitAll(b, leg);
}

// What one block does, found before the operation's turn comes.
struct Share {
  Arguments arguments;
  size_t at;                 // bytes of the buffers before it
  algorithms::Split shards;  // one for each rank; for all together in one shot

  __device__ Share(const Arguments& all, int parts)
      : arguments(shareOf(all)),
        at(static_cast<size_t>(arguments.receive - all.receive)),
        shards(arguments.count, static_cast<size_t>(parts),
               std::max<size_t>(1, algorithms::kShareGrain / all.elementBytes)) {}
};

// Here, and if `pushes` at all peers.
template <bool pushes, typename B>
__device__ void reduceInputs(B& b, const Share& share, const PeerBuffers& peers, algorithms::Span span) {
  const Arguments& a = share.arguments;
  const size_t skipped = span.begin * a.elementBytes;
  const std::byte* sources[algorithms::kMostPulled];
  for (int rank = 0; rank < b.ranks(); ++rank) sources[rank] = peers.sends[rank] + share.at + skipped;
  if constexpr (pushes) {
    std::byte* others[algorithms::kMostPulled];
    for (int step = 1; step < b.ranks(); ++step) {
      others[step - 1] = peers.receives[algorithms::rotated(b.rank(), step, b.ranks())] + share.at + skipped;
    }
    b.reduce(b.coop(), a.reduce, {a.receive + skipped, others, b.ranks() - 1}, sources, b.ranks(), span.size,
             a.stream);
  } else {
    b.reduce(b.coop(), a.reduce, {a.receive + skipped}, sources, b.ranks(), span.size, a.stream);
  }
}

// The same through tiles; by threads what is no whole pack at the end.
template <typename Reducer>
__device__ Status reduceInTiles(Cuda<Reducer, ShortLines>& b, TileShared& shared, const Share& share,
                                const PeerBuffers& peers, algorithms::Span span) {
  const Arguments& a = share.arguments;
  const size_t whole = span.size * a.elementBytes / sizeof(Pack) * sizeof(Pack);
  stretto::cuda::Tiles tiles(b, shared,
                             {peers.sends, peers.receives, share.at + span.begin * a.elementBytes, whole});
  STRETTO_TRY(tiles.run(a.reduce));
  const size_t done = whole / a.elementBytes;
  if (done < span.size) reduceInputs<true>(b, share, peers, {span.begin + done, span.size - done});
  return kOkStatus;
}

// From those who have reduced them: loads of several peers are under way together.
template <typename B>
__device__ void readResults(const B& b, const Share& share, const PeerBuffers& peers) {
  constexpr int kPeersAtOnce = 3;  // with more registers are spilled
  const Arguments& a = share.arguments;
  for (int first = 1; first < b.ranks(); first += kPeersAtOnce) {
    stretto::cuda::Copies<kPeersAtOnce> copies;
#pragma unroll
    for (int i = 0; i < kPeersAtOnce; ++i) {
      if (first + i >= b.ranks()) continue;
      const int peer = algorithms::rotated(b.rank(), first + i, b.ranks());
      const algorithms::Span span = share.shards[static_cast<size_t>(peer)];
      const size_t skipped = span.begin * a.elementBytes;
      copies.set(i, a.receive + skipped, peers.receives[peer] + share.at + skipped,
                 span.size * a.elementBytes);
    }
    copies.run(b.coop().rank(), b.coop().size());
  }
}

enum class Form : uint8_t { kOneShot, kTwoShots, kPushed, kPushedInTiles };

template <Form form>
using SharedOf = std::conditional_t<form == Form::kPushedInTiles, TileShared, BlockShared>;

// Two shots in place are safe: a rank's input of a shard is read by the shard's owner alone. Results are
// written there by the owner, element by element after it has read it, or by the rank itself, after the
// owner's block has come to the second meeting.
template <Form form, typename B>
__device__ Status pullShare(B& b, SharedOf<form>& shared, const Share& share, const PeerBuffers& peers) {
  b.nextEpoch();
  STRETTO_TRY(meet(b, Leg::kScatter));
  const algorithms::Span span = share.shards[static_cast<size_t>(form == Form::kOneShot ? 0 : b.rank())];
  if constexpr (form == Form::kPushedInTiles) {
    STRETTO_TRY(reduceInTiles(b, shared, share, peers, span));
  } else {
    reduceInputs<form == Form::kPushed>(b, share, peers, span);
  }
  if constexpr (form == Form::kTwoShots) {
    STRETTO_TRY(meet(b, Leg::kGather));
    readResults(b, share, peers);
  }
  if (!peers.part) return kOkStatus;
  b.nextEpoch();
  return meet(b, Leg::kScatter);
}

template <typename Reducer, Form form, int mostThreads>
__global__ void __launch_bounds__(mostThreads, 1)
    pull(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments,
         const __grid_constant__ PeerBuffers peers) {
  auto& shared = stretto::cuda::blockShared<SharedOf<form>>();
  if constexpr (form != Form::kPushedInTiles || stretto::cuda::kHasCopyUnit) {
    if constexpr (form == Form::kPushedInTiles) shared.prepare();
    Cuda<Reducer, ShortLines> backend(context, shared, static_cast<int>(blockIdx.x));
    const Share share(arguments, form == Form::kOneShot ? 1 : context.ranks);
    backend.begin();
    if (share.arguments.count != 0) (void)pullShare<form>(backend, shared, share, peers);  // errors: Control
    backend.end();
  }
}

// What branches by type is too slow for the few threads that reduce tiles, and goes on as it did.
template <typename Reducer>
PullKernel pullBy(Form form) {
  if constexpr (!std::is_same_v<Reducer, AnyReducer>) {
    using stretto::cuda::kTileThreads;
    if (form == Form::kPushedInTiles) {
      return {pull<Reducer, Form::kPushedInTiles, kTileThreads>, kTileThreads, stretto::cuda::kTileBytes};
    }
  }
  switch (form) {
    case Form::kOneShot:
      return {pull<Reducer, Form::kOneShot, kChunkThreads>, kChunkThreads};
    case Form::kTwoShots:
      return {pull<Reducer, Form::kTwoShots, kChunkThreads>, kChunkThreads};
    case Form::kPushed:
    case Form::kPushedInTiles:
      break;
  }
  return {pull<Reducer, Form::kPushed, kChunkThreads>, kChunkThreads};
}

PullKernel pullBy(Form form, KernelTable::Kind kind) {
  switch (kind) {
    case KernelTable::Kind::kFloat32:
      return pullBy<FixedReducer<DataType::kFloat32, Operator::kSum>>(form);
    case KernelTable::Kind::kFloat16:
      return pullBy<FixedReducer<DataType::kFloat16, Operator::kSum>>(form);
    case KernelTable::Kind::kBfloat16:
      return pullBy<FixedReducer<DataType::kBfloat16, Operator::kSum>>(form);
    case KernelTable::Kind::kAny:
      break;
  }
  return pullBy<AnyReducer>(form);
}

Form formOf(const Launch& launch) {
  if (algorithms::pushesResults(launch.protocol)) return Form::kPushed;
  return launch.algorithm == algorithms::Algorithm::kTwoShot ? Form::kTwoShots : Form::kOneShot;
}

// Copy units move whole packs. So much of a shard threads of one block have under way at once, and are there
// sooner.
bool fitsTiles(const PeerBuffers& peers, int ranks, size_t shareBytes) {
  constexpr size_t kAtOnce = 64 << 10;
  bool fits = ranks > 1 && shareBytes > kAtOnce;
  for (int rank = 0; rank < ranks; ++rank) {
    fits = fits && stretto::cuda::isAligned(peers.sends[rank], sizeof(Pack)) &&
           stretto::cuda::isAligned(peers.receives[rank], sizeof(Pack));
  }
  return fits;
}

}  // namespace

PullKernel pullKernel(const Launch& launch, const PeerBuffers& peers, int ranks, bool copies) {
  const auto kind = stretto::cuda::kindOf(launch.arguments.reduce);
  const Form form = formOf(launch);
  const size_t shareBytes = launch.arguments.bytes() / static_cast<size_t>(launch.blocks) /
                            algorithms::shardsOf(launch.algorithm, ranks);
  const bool bulk = launch.protocol == algorithms::Protocol::kPullBulk;
  if (copies && bulk && fitsTiles(peers, ranks, shareBytes)) {
    return pullBy(Form::kPushedInTiles, kind);
  }
  PullKernel kernel = pullBy(form, kind);
  constexpr size_t kWarp = 32;
  const size_t warps = shareBytes / sizeof(Pack) / kWarp + 1;  // those that have something to do
  kernel.threads = static_cast<int>(std::min(warps * kWarp, static_cast<size_t>(kernel.threads)));
  return kernel;
}

Result<bool> preparePulls() {
  constexpr int kLeastPtx = 90;  // of which kernels in tiles must be compiled: machine code says it, too
  const platform::cuda::AmidCaptures amid;
  bool copies = true;
  for (int kind = 0; kind < stretto::cuda::kReducerKinds; ++kind) {
    for (const Form form : {Form::kOneShot, Form::kTwoShots, Form::kPushed, Form::kPushedInTiles}) {
      cudaFuncAttributes attributes;
      const PullKernel kernel = pullBy(form, static_cast<KernelTable::Kind>(kind));
      const auto* const function = reinterpret_cast<const void*>(kernel.function);
      if (const cudaError_t error = cudaFuncGetAttributes(&attributes, function); error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(Code::kSystem, "CUDA: loading a kernel: %s (%s)", cudaGetErrorString(error),
                    cudaGetErrorName(error));
      }
      if (kernel.sharedBytes == 0) continue;
      // What was made from PTX for older devices does nothing (stretto::cuda::kHasCopyUnit), on any device.
      copies = copies && attributes.ptxVersion >= kLeastPtx;
      // No device without copy units has so much shared memory.
      constexpr auto kShared = cudaFuncAttributeMaxDynamicSharedMemorySize;
      if (cudaFuncSetAttribute(function, kShared, static_cast<int>(kernel.sharedBytes)) == cudaSuccess) {
        continue;
      }
      (void)cudaGetLastError();
      copies = false;
    }
  }
  return copies;
}

}  // namespace stretto::executors::cuda
