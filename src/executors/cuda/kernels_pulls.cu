#include "executors/cuda/kernels.cuh"
#include "executors/cuda/pulls.hpp"

#include <cuda_runtime.h>

#include "platform/cuda/device.hpp"

namespace stretto::executors::cuda {
namespace {

using stretto::cuda::FixedReducer;

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
      : arguments(shareOf(all, 1)),
        at(static_cast<size_t>(arguments.receive - all.receive)),
        shards(arguments.count, static_cast<size_t>(parts), algorithms::lineGrain(all.elementBytes)) {}
};

// Here, and if `pushes` at all peers.
template <bool pushes, typename B>
__device__ void reduceInputs(B& b, const Share& share, const PeerBuffers& peers, int part) {
  const Arguments& a = share.arguments;
  const algorithms::Span span = share.shards[static_cast<size_t>(part)];
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

enum class Form : uint8_t { kOneShot, kTwoShots, kPushed };

// Two shots in place are safe: a rank's input of a shard is read by the shard's owner alone. Results are
// written there by the owner, element by element after it has read it, or by the rank itself, after the
// owner's block has come to the second meeting.
template <Form form, typename B>
__device__ Status pullShare(B& b, const Share& share, const PeerBuffers& peers) {
  b.nextEpoch();
  STRETTO_TRY(meet(b, Leg::kScatter));
  reduceInputs<form == Form::kPushed>(b, share, peers, form == Form::kOneShot ? 0 : b.rank());
  if constexpr (form == Form::kTwoShots) {
    STRETTO_TRY(meet(b, Leg::kGather));
    readResults(b, share, peers);
  }
  if (!peers.part) return kOkStatus;
  b.nextEpoch();
  return meet(b, Leg::kScatter);
}

template <typename Backend, Form form, int mostThreads>
__global__ void __launch_bounds__(mostThreads, 1)
    pull(const __grid_constant__ Context context, const __grid_constant__ Arguments arguments,
         const __grid_constant__ PeerBuffers peers) {
  auto& shared = stretto::cuda::blockShared<BlockShared>();
  stretto::cuda::letNextBegin();
  Backend backend(context, shared, static_cast<int>(blockIdx.x));
  const Share share(arguments, form == Form::kOneShot ? 1 : context.ranks);
  backend.begin();
  if (share.arguments.count != 0) (void)pullShare<form>(backend, share, peers);  // errors are in Control
  backend.end();
}

template <typename Reducer>
PullKernel pullBy(Form form) {
  using Backend = Cuda<Reducer, ShortLines>;
  switch (form) {
    case Form::kOneShot:
      return {pull<Backend, Form::kOneShot, kChunkThreads>, kChunkThreads};
    case Form::kTwoShots:
      return {pull<Backend, Form::kTwoShots, kChunkThreads>, kChunkThreads};
    case Form::kPushed:
      break;
  }
  return {pull<Backend, Form::kPushed, kChunkThreads>, kChunkThreads};
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

}  // namespace

PullKernel pullKernel(algorithms::Algorithm algorithm, algorithms::Protocol protocol,
                      KernelTable::Kind kind) {
  if (protocol == algorithms::Protocol::kPullPush) return pullBy(Form::kPushed, kind);
  return pullBy(algorithm == algorithms::Algorithm::kTwoShot ? Form::kTwoShots : Form::kOneShot, kind);
}

Status preparePulls() {
  const platform::cuda::AmidCaptures amid;
  for (int kind = 0; kind < stretto::cuda::kReducerKinds; ++kind) {
    for (const Form form : {Form::kOneShot, Form::kTwoShots, Form::kPushed}) {
      cudaFuncAttributes attributes;
      const PullKernel kernel = pullBy(form, static_cast<KernelTable::Kind>(kind));
      const cudaError_t error =
          cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel.function));
      if (error == cudaSuccess) continue;
      (void)cudaGetLastError();
      return fail(Code::kSystem, "CUDA: loading a kernel: %s (%s)", cudaGetErrorString(error),
                  cudaGetErrorName(error));
    }
  }
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
