#include "executors/cuda/copies.hpp"

#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {
namespace {

using stretto::cuda::FixedReducer;

// Of kernels that belong to one operation: all but the first look whether one before them gave up, and then
// do not wait as long again.
template <typename Base>
class InSequence : public Base {
 public:
  __device__ InSequence(const Context& context, BlockShared& shared, int channel)
      : Base(context, shared, channel), control_(context.control) {}

  // The same for the whole block.
  __device__ bool isOver() const {
    const auto coop = this->coop();
    const bool over = coop.rank() == 0 && stretto::cuda::loadRelaxed32(&control_->reported) != 0;
    return stretto::cuda::anyThread(coop.barrier, coop.count, over);
  }

 private:
  const stretto::cuda::Control* control_;
};

// What a rank's stream has done before, copies to peers among it, is done when its peers go on.
template <bool isFirst>
struct Meeting {
  template <typename B>
  __device__ static Status run(B& b, const Arguments&) {
    if (!isFirst && b.isOver()) return Status{Code::kRemote};
    b.nextEpoch();
    b.signalAll(b.coop(), Phase::kScatter);
    return b.waitAll(b.coop(), Phase::kScatter);
  }
};

// In one epoch: the second meeting has mailboxes of its own.
struct Reduction {
  template <typename B>
  __device__ static Status run(B& b, const Arguments& a) {
    if (b.isOver()) return Status{Code::kRemote};
    b.nextEpoch();
    b.signalAll(b.coop(), Phase::kScatter);
    STRETTO_TRY(b.waitAll(b.coop(), Phase::kScatter));
    const std::byte* sources[kMaxRanks];
    for (int rank = 0; rank < b.ranks(); ++rank) {
      sources[rank] = rank == b.rank() ? a.send : a.receive + a.block(rank);
    }
    b.reduce(b.coop(), a.reduce, {a.receive + a.block(b.rank())}, sources, b.ranks(), a.count, a.stream);
    b.signalAll(b.coop(), Phase::kGather);
    return b.waitAll(b.coop(), Phase::kGather);
  }
};

// Only mailboxes are used here. LLFormat stands for any format that counts in ChannelState::epoch.
template <typename Reducer>
Kernel reductionBy() {
  return kernelOf<Reduction, InSequence<Cuda<Reducer, LLFormat>>, kChunkThreads>();
}

template <bool isFirst>
Kernel meeting() {
  return kernelOf<Meeting<isFirst>, InSequence<Cuda<AnyReducer, LLFormat>>, kMaxRanks>();
}

}  // namespace

Kernel meetingKernel(bool isFirst) {
  return isFirst ? meeting<true>() : meeting<false>();
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
