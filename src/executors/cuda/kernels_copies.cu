#include "executors/cuda/copies.hpp"

#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {
namespace {

using stretto::cuda::FixedReducer;

// What a rank's stream has done before, copies to peers among it, is done when its peers go on.
struct Meeting {
  template <typename B>
  __device__ static Status run(B& b, const Arguments&) {
    b.nextEpoch();
    algorithms::signalAll(b, Leg::kScatter);
    return algorithms::waitAll(b, Leg::kScatter);
  }
};

// In one epoch: the second meeting has cells of its own.
struct Reduction {
  template <typename B>
  __device__ static Status run(B& b, const Arguments& a) {
    b.nextEpoch();
    algorithms::signalAll(b, Leg::kScatter);
    STRETTO_TRY(algorithms::waitAll(b, Leg::kScatter));
    const std::byte* sources[kMaxRanks];
    for (int rank = 0; rank < b.ranks(); ++rank) {
      sources[rank] = rank == b.rank() ? a.send : a.receive + a.block(rank);
    }
    b.reduce(b.coop(), a.reduce, {a.receive + a.block(b.rank())}, sources, b.ranks(), a.count, a.stream);
    algorithms::signalAll(b, Leg::kGather);
    return algorithms::waitAll(b, Leg::kGather);
  }
};

template <typename Reducer>
Kernel reductionBy() {
  return kernelOf<Reduction, Cuda<Reducer, ShortLines>, false, kChunkThreads, 1>();
}

}  // namespace

Kernel meetingKernel() {
  return kernelOf<Meeting, Cuda<AnyReducer, ShortLines>, false, kMaxRanks, 1>();
}

Kernel reductionKernel(KernelTable::Kind kind) {
  switch (kind) {
    case KernelTable::Kind::kFloat32:
      return reductionBy<FixedReducer<DataType::kFloat32, Operator::kSum>>();
    case KernelTable::Kind::kFloat16:
      return reductionBy<FixedReducer<DataType::kFloat16, Operator::kSum>>();
    case KernelTable::Kind::kBfloat16:
      return reductionBy<FixedReducer<DataType::kBfloat16, Operator::kSum>>();
    case KernelTable::Kind::kAny:
      break;
  }
  return reductionBy<AnyReducer>();
}

}  // namespace stretto::executors::cuda
