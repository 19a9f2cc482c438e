#include "executors/cuda/kernels.cuh"
#include "executors/cuda/pulls.hpp"

#include <cuda_runtime.h>

#include "algorithms/shares.hpp"
#include "executors/cuda/check.hpp"
#include "platform/cuda/device.hpp"

namespace stretto::executors::cuda {
namespace {

using stretto::cuda::FixedReducer;
using stretto::cuda::Pack;

// Every rank's block has come here; what its stream did before is visible to the others.
template <typename B>
__device__ Status meet(B& b, Phase phase) {
  b.signalAll(b.coop(), phase);
  return b.waitAll(b.coop(), phase);
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

// From those who have reduced them: loads of several peers are under way together.
template <typename B>
__device__ void readResults(const B& b, const Share& share, const PeerBuffers& peers) {
  constexpr int kPeersAtOnce = 3;  // with more registers are spilled
  const Arguments& a = share.arguments;
  for (int first = 1; first < b.ranks(); first += kPeersAtOnce) {
    stretto::cuda::SideBySide<kPeersAtOnce> copies;
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

enum class Form : uint8_t { kOneShot, kTwoShots, kPushed };

// Two shots in place are safe: a rank's input of a shard is read by the shard's owner alone. Results are
// written there by the owner, element by element after it has read it, or by the rank itself, after the
// owner's block has come to the second meeting.
template <Form form, typename B>
__device__ Status pullShare(B& b, const Share& share, const PeerBuffers& peers) {
  b.nextEpoch();
  STRETTO_TRY(meet(b, Phase::kScatter));
  const algorithms::Span span = share.shards[static_cast<size_t>(form == Form::kOneShot ? 0 : b.rank())];
  reduceInputs<form == Form::kPushed>(b, share, peers, span);
  if constexpr (form == Form::kTwoShots) {
    STRETTO_TRY(meet(b, Phase::kGather));
    readResults(b, share, peers);
  }
  if (!peers.part) return kOkStatus;
  b.nextEpoch();
  return meet(b, Phase::kScatter);
}

template <typename Reducer, Form form>
__global__ void __launch_bounds__(kChunkThreads, 1)
    pull(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments,
         const __grid_constant__ PeerBuffers peers) {
  auto& shared = stretto::cuda::blockShared<BlockShared>();
  // Only mailboxes are used. LLFormat stands for any format that counts in ChannelState::epoch.
  Cuda<Reducer, LLFormat> backend(context, shared, static_cast<int>(blockIdx.x));
  const Share share(arguments, form == Form::kOneShot ? 1 : context.ranks);
  backend.begin();
  if (share.arguments.count != 0) (void)pullShare<form>(backend, share, peers);  // what goes wrong: Control
  backend.end();
}

template <typename Reducer>
PullKernel pullBy(Form form) {
  switch (form) {
    case Form::kOneShot:
      return {pull<Reducer, Form::kOneShot>, kChunkThreads};
    case Form::kTwoShots:
      return {pull<Reducer, Form::kTwoShots>, kChunkThreads};
    case Form::kPushed:
      break;
  }
  return {pull<Reducer, Form::kPushed>, kChunkThreads};
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
  if (launch.protocol == algorithms::Protocol::kPullPush) return Form::kPushed;
  return launch.algorithm == algorithms::Algorithm::kTwoShot ? Form::kTwoShots : Form::kOneShot;
}

}  // namespace

PullKernel pullKernel(const Launch& launch, int ranks) {
  PullKernel kernel = pullBy(formOf(launch), stretto::cuda::kindOf(launch.arguments.reduce));
  constexpr size_t kWarp = 32;
  const size_t shareBytes = launch.arguments.bytes() / static_cast<size_t>(launch.blocks) /
                            algorithms::shardsOf(launch.algorithm, ranks);
  const size_t warps = shareBytes / sizeof(Pack) / kWarp + 1;  // those that have something to do
  kernel.threads = static_cast<int>(std::min(warps * kWarp, static_cast<size_t>(kernel.threads)));
  return kernel;
}

Status preparePulls() {
  const platform::cuda::AmidCaptures amid;
  for (int kind = 0; kind < stretto::cuda::kReducerKinds; ++kind) {
    for (const Form form : {Form::kOneShot, Form::kTwoShots, Form::kPushed}) {
      cudaFuncAttributes attributes;
      const PullKernel kernel = pullBy(form, static_cast<KernelTable::Kind>(kind));
      const auto* const function = reinterpret_cast<const void*>(kernel.function);
      STRETTO_TRY(check(cudaFuncGetAttributes(&attributes, function), "loading a kernel"));
    }
  }
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
