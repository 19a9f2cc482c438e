// How the threads of the Cuda backend go on from one stage to the next, and from one operation of a launch to
// the next. Part of cuda.cuh.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitMailbox(int peer, const Mailbox* mailbox, uint64_t value,
                                                            bool tagged) {
  WaitSoFar waiting;
  Pack seen = loadRelaxed(mailbox);
  while (seen.low < value) {
    if (loadShared(shared_.failed) != 0) return false;
    if (const Code code = exhausted(waiting, peer); code != Code::kOk) {
      report(code, peer, 0);
      return false;
    }
    seen = loadRelaxed(mailbox);
  }
  if (!tagged || seen.high == tag_) return true;
  report(Code::kInvalidUsage, peer, seen.high);
  return false;
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::waitAll(Coop coop, Phase phase) {
  bool bad = false;
  for (int step = 1 + coop.rank(); step < ranks(); step += coop.size()) {
    const int peer = peerAt(ranks() - step);
    bad = !await(peer, mailboxFrom(peer, phase), epoch_, true) || bad;
  }
  return verdict(coop, bad);
}

template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitStage(int stage, size_t chunk, int stages) {
  const size_t ahead = layout().slots / 2;
  bool bad = false;
  if (coop_.rank() == 0) {
    const uint32_t& before = shared_.progress[stage == 0 ? stages - 1 : stage - 1];
    const size_t needed = stage != 0 ? chunk + 1 : chunk + 1 > ahead ? chunk + 1 - ahead : 0;
    // Bounded: the stage waited for ends by its own deadline, and says so.
    while (loadShared(before) < needed && !bad) bad = loadShared(shared_.failed) != 0;
    fenceBlock();
  }
  return !anyThread(coop_.barrier, coop_.count, bad);
}

template <typename Reducer, typename Format, int kRanks>
template <typename... Stages>
__device__ Status Cuda<Reducer, Format, kRanks>::pipeline(size_t chunks, Stages... stages) {
  constexpr int kStages = sizeof...(Stages);
  static_assert(kStages <= BlockShared::kMostStages);
  if constexpr (Format::kWarpChunks) return pipelineOfWarps(chunks, stages...);
  if constexpr (Format::kNorms) return pipelineOfTokens(chunks, stages...);
  Status status;
  if (chunks <= 1) {
    if (chunks == 0) return status;
    nextEpoch();
    // Lines tell each thread for itself; were one to leave out a stage, others would wait for it there.
    const auto together = [&](const Status& mine) {
      return anyThread(coop_.barrier, coop_.count, !mine.ok()) ? Status{Code::kRemote} : mine;
    };
    (void)((status = together(stages(0)), status.ok()) && ...);
    return status;
  }
  const Coop whole = coop_;
  const int each = whole.count / kStages / kWarp * kWarp;
  const int mine = whole.rank() / each;
  const uint64_t before = epoch_;
  if (threadIdx.x < kStages) shared_.progress[threadIdx.x] = 0;
  __syncthreads();
  if (mine < kStages) {
    coop_ = {mine * each, each, 1 + mine};
    for (size_t chunk = 0; chunk < chunks && status.ok(); ++chunk) {
      if (!awaitStage(mine, chunk, kStages)) break;
      epoch_ = before + chunk + 1;
      int stage = 0;
      ((stage++ == mine ? (void)(status = stages(chunk)) : (void)0), ...);
      // Lines tell each thread for itself; from here on all of the stage's have the same verdict.
      if (anyThread(coop_.barrier, coop_.count, !status.ok())) {
        status = Status{Code::kRemote};
      } else if (coop_.rank() == 0) {
        fenceBlock();
        storeShared(shared_.progress[mine], static_cast<uint32_t>(chunk + 1));
      }
    }
  }
  coop_ = whole;
  __syncthreads();
  epoch_ = before + chunks;
  return shared_.failed != 0 ? Status{Code::kRemote} : Status{};
}

template <typename Reducer, typename Format, int kRanks>
__device__ __forceinline__ void Cuda<Reducer, Format, kRanks>::prepare() {
  if (threadIdx.x == 0) {
    shared_.failed = shared_.looked = shared_.word = shared_.awaits = 0;
    if constexpr (kTurns) shared_.given = {tag_, rank_, Format::region(layout()), layout().slots};
  }
  // Loads what is needed right after step 2 from the parameters, where there are registers to spare for it.
  if constexpr (!kTurns && !Format::kWarpChunks && kElementBytes != 0) {
    asm volatile("" ::"l"(ownNear_), "r"(layout().ranks), "r"(Format::region(layout())), "l"(tag_));
#pragma unroll
    for (int step = 1; step < kRanks; ++step) asm volatile("" ::"l"(peerNear_[step - 1]));
  }
  __syncthreads();
  if constexpr (kTurns) {
    tag_ = shared_.given.tag;
    rank_ = shared_.given.rank;
  }
}

// leave() has synchronised the block, so that all lines of the previous operation have been read. LL and
// LL128 need no more. Lamport lines must also have been erased before a peer writes them again, which it does
// as soon as it has this operation's lines. Between two launches the kernel's end orders that; here a fence
// does.
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::take(const Called& called, uint32_t number,
                                                    uint32_t firstChannel,
                                                    bool isFirst) requires(!Format::kWarpChunks) {
  if constexpr (Format::kLamport) {
    if (!isFirst) fenceSystemByWarp();
  }
  tag_ = called.tag;
  place_.its = &called;
  place_.number = number;
  place_.firstChannel = firstChannel;
  if (context_.stamps != nullptr && threadIdx.x == 0) shared_.began = nanoseconds();
}

// By one thread of the block, at its end. `queue`: 0 for a collective, which has been counted by now.
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::leaveStamp(uint64_t queue, uint64_t finished) const {
  const int block = static_cast<int>(blockIdx.x);
  if (context_.stamps == nullptr || block >= Stamps::kBlocks) return;
  const uint64_t number = ++context_.channels[block].stamped;
  Stamp& stamp = context_.stamps->of[block][number % Stamps::kEntries];
  storeRelaxed(&stamp.start, {shared_.began, number});
  storeRelaxed(&stamp.stop, {nanoseconds(), number});
  storeRelaxed(&stamp.launch, {context_.launch + place_.number, number});
  storeRelaxed(&stamp.queue, {queue != 0 ? queue : Stamp::kCollective | finished, number});
}

// The first channel counts the operations of a launch when all of them have ended: it may have had part in
// none.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::leave() requires(!Format::kWarpChunks) {
  const bool over = anyThread(0, static_cast<int>(blockDim.x), failed_);
  if (threadIdx.x != 0) return over;
  state_.epoch = epoch_;
  if (channel_ != 0) addRelaxed64(&state_.finished, 1);
  leaveStamp(0, context_.channels[0].finished + place_.number + 1);
  return over;
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::endAll(uint32_t operations) requires(!Format::kWarpChunks) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  ChannelState& first = context_.channels[0];
  if (atomicAdd(&first.ended, 1u) + 1 != gridDim.x) return;
  first.ended = 0;
  first.finished += operations;
}

}  // namespace stretto::cuda
