#include "executors/cuda/one_sided.hpp"

#include <cuda_runtime.h>

#include "algorithms/shape.hpp"
#include "platform/cuda/device.hpp"
#include "primitives/cuda/block.cuh"
#include "primitives/cuda/copy.cuh"

namespace stretto::executors::cuda {

using namespace stretto::cuda;

namespace {

// The host's words: one look by one thread of each block.
__device__ bool isOver(const Control& control) {
  const bool over =
      threadIdx.x == 0 && (loadRelaxed32(&control.abort) | loadRelaxed32(&control.reported)) != 0;
  return anyThread(0, kPutThreads, over);
}

// Atomic: a wait that was captured into a graph and a put of another stream may end at the same time.
__device__ void countEnd(uint64_t* ended) {
  atomicAdd(reinterpret_cast<unsigned long long*>(ended), 1ull);
}

__global__ void __launch_bounds__(kPutThreads)
    putAndSignal(const __grid_constant__ Context context, const __grid_constant__ Put put) {
  constexpr size_t kGrain = 16;
  if (isOver(*context.control)) return;
  const algorithms::Span share = algorithms::Split(put.bytes, gridDim.x, kGrain)[blockIdx.x];
  copyBytes(put.to + share.begin, put.from + share.begin, share.size, static_cast<int>(threadIdx.x),
            kPutThreads);
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    fenceSystem();
    if (atomicAdd(put.arrived, 1u) + 1 != gridDim.x) return;
    *put.arrived = 0;
    fenceSystem();
  }
  const uint64_t number = *put.sent + 1;
  *put.sent = number;
  storeRelease(put.counter, number);
  countEnd(put.ended);
}

// By one thread. Before it reports a failure it reads the counter once more, as the signal may have come
// meanwhile.
__global__ void awaitSignals(const __grid_constant__ Context context,
                             const __grid_constant__ SignalWait wait) {
  auto& shared = blockShared<BlockShared>();
  if (threadIdx.x != 0) return;
  shared.failed = shared.looked = shared.word = 0;
  shared.awaits = static_cast<uint32_t>(Awaited::kSender);
  const uint64_t wanted = *wait.taken + wait.count;
  WaitSoFar waiting;
  while (loadAcquire(wait.counter) < wanted) {
    Look seen{Code::kInvalidUsage, 0};  // signals of its own have come, or never will
    if (wait.peer != context.rank) {
      if (!waiting.isDue()) continue;
      seen = lookAround(context, shared, waiting.deadline, wait.peer);
      waiting.deadline = seen.deadline;
    }
    if (seen.code == Code::kOk || loadAcquire(wait.counter) >= wanted) continue;
    return reportOnce(context, context.called, shared, {seen.code, wait.peer, 0, 0});
  }
  *wait.taken = wanted;
  countEnd(wait.ended);
}

}  // namespace

PutKernel putKernel() {
  return putAndSignal;
}
WaitKernel waitKernel() {
  return awaitSignals;
}

// One block is the quickest to begin and to end; more of them move more at a time.
int blocksOfPut(size_t bytes) {
  constexpr size_t kShare = size_t{32} << 10, kMost = 64;
  return static_cast<int>(std::clamp<size_t>((bytes + kShare - 1) / kShare, 1, kMost));
}

Signals::~Signals() {
  platform::cuda::release(setup_.device, memory_);
}

Status Signals::begin() {
  auto memory = platform::cuda::allocate(setup_.device, Shape::signalAt(2 * setup_.ranks + 2, 0));
  if (!memory.ok()) return memory.status();
  memory_ = memory.value();
  return kOkStatus;
}

uint64_t* Signals::counter(int receiver, int sender, uint32_t number, std::byte* const* windows) const {
  std::byte* const counter =
      receiver == sender ? at(2 * setup_.ranks, number)
                         : windows[receiver] + setup_.shape.signalsBegin() + Shape::signalAt(sender, number);
  return reinterpret_cast<uint64_t*>(counter);
}

Put Signals::put(const DeviceSignal& signal, std::byte* const* windows) const {
  return {signal.to,
          signal.from,
          signal.bytes,
          counter(signal.peer, setup_.rank, signal.number, windows),
          reinterpret_cast<uint64_t*>(at(signal.peer, signal.number)),
          reinterpret_cast<uint32_t*>(at(2 * setup_.ranks + 1, 0)),
          ended()};
}

SignalWait Signals::wait(int peer, uint32_t number, uint64_t count, std::byte* const* windows) const {
  return {counter(setup_.rank, peer, number, windows),
          reinterpret_cast<uint64_t*>(at(setup_.ranks + peer, number)), count, ended(), peer};
}

}  // namespace stretto::executors::cuda
