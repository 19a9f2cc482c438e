// The verbs of the Cuda backend that move runs. Part of cuda.cuh. A coop is one warp here, and a run is one
// epoch: the warp copies it, and one of its threads then stores the flag with release order; the reader's
// warp acquires the flag first. No two warps of a stage wait for each other, so there are always some that
// move bytes while others wait for a fence.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::putRun(const RunRing& ring, uint64_t number, uint64_t flag,
                                                      const std::byte* from, size_t bytes) const {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (bytes != 0) copyBytes(ring.data(number), from, bytes, lane, kWarp);
  __syncwarp();
  if (lane == 0) storeRelease(ring.flag(number), flag);
}

// True when the run has come; the same for the whole warp.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitRun(int peer, const uint64_t* at, uint64_t flag) {
  bool come = true;
  if (threadIdx.x % kWarp == 0) {
    Patience patience;
    uint64_t seen = loadAcquire(at);
    while (seen != flag && !failed_) {
      const Code code = exhausted(patience);
      const bool differs = (seen ^ flag) >> kTagBits == 0;
      if (code != Code::kOk) report(differs ? Code::kInvalidUsage : code, peer, differs ? seen : 0);
      seen = loadAcquire(at);
    }
    come = seen == flag && !failed_;
  }
  come = __shfl_sync(0xffffffff, come, 0) != 0;
  failed_ = failed_ || !come;
  return come;
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::readRun(int peer, const RunRing& ring, uint64_t number,
                                                         uint64_t flag, std::byte* to, size_t bytes) {
  if (!awaitRun(peer, ring.flag(number), flag)) return Status{Code::kRemote};
  if (bytes != 0) copyBytes(to, ring.data(number), bytes, static_cast<int>(threadIdx.x % kWarp), kWarp);
  return {};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::reduceRun(const ReduceSpec& spec, std::byte* to,
                                                           const std::byte* own, size_t bytes) {
  const std::byte* sources[kRanks != 0 ? kRanks : kMaxRanks];
  for (int source = 0; source < ranks(); ++source) {
    if (source == rank()) {
      sources[source] = own;
      continue;
    }
    const RunRing ring = runsOf(rank(), source);
    if (!awaitRun(source, ring.flag(epoch_), lineFlag())) return Status{Code::kRemote};
    sources[source] = ring.data(epoch_);
  }
  reduceBytes(Reducer(spec), {to}, sources, ranks(), bytes, static_cast<int>(threadIdx.x % kWarp), kWarp);
  return {};
}

// Warp w of each stage has chunks w, w + warps, ...; a stage of a chunk begins when the same warp of the
// stage before has done it. A warp of the first stage runs ahead of its fellow in the last so far that both
// together stay within half the ring.
template <typename Reducer, typename Format, int kRanks>
template <typename... Stages>
__device__ Status Cuda<Reducer, Format, kRanks>::pipelineOfWarps(size_t chunks, Stages... stages) {
  constexpr int kStages = sizeof...(Stages);
  const int warps = coop_.count / kStages / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int mine = warp / warps;
  const int place = warp % warps;
  const uint32_t ahead = std::max(1u, layout().runs / (2 * static_cast<uint32_t>(warps)));
  const uint64_t before = epoch_;
  const Coop whole = coop_;
  if (threadIdx.x < BlockShared::kMostWarps * BlockShared::kMostStages) shared_.done[threadIdx.x] = 0;
  __syncthreads();
  coop_ = {warp * kWarp, kWarp, Threads::kOneWarp};
  Status status;
  uint32_t turn = 0;
  for (size_t chunk = static_cast<size_t>(place); mine < kStages && chunk < chunks && status.ok();
       chunk += static_cast<size_t>(warps), ++turn) {
    const int awaited = (mine == 0 ? kStages - 1 : mine - 1) * BlockShared::kMostWarps + place;
    const uint32_t needed = mine != 0 ? turn + 1 : turn + 1 > ahead ? turn + 1 - ahead : 0;
    // Bounded: the warp waited for ends by its own deadline, and says so.
    while (volatileOf(shared_.done[awaited]) < needed && volatileOf(shared_.failed) == 0) {
    }
    __syncwarp();
    if (__any_sync(0xffffffff, volatileOf(shared_.failed) != 0)) break;
    __threadfence_block();
    epoch_ = before + chunk + 1;
    int stage = 0;
    ((stage++ == mine ? (void)(status = stages(chunk)) : (void)0), ...);
    __syncwarp();
    __threadfence_block();
    if (threadIdx.x % kWarp == 0) volatileOf(shared_.done[mine * BlockShared::kMostWarps + place]) = turn + 1;
  }
  coop_ = whole;
  __syncthreads();
  epoch_ = before + chunks;
  return shared_.failed != 0 ? Status{Code::kRemote} : Status{};
}

// A message of a link, run by run; warps take turns, by the number that a run has on the link. The sender's
// warp waits for the credit of the receiver's that had the same place in the ring before.
template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::sendRuns(int peer, const std::byte* from, size_t bytes) {
  const RunRing ring = linkRunsOf(peer, rank());
  const uint32_t warp = threadIdx.x / kWarp;
  forEachRun(cursors_[peer].runsSent, bytes, [&](uint64_t number, size_t begin, size_t size) {
    const Cell* const credit = cell(near(rank(), layout().runCredit(placeAt(rank(), peer), warp)));
    const uint64_t owed = number < ring.count ? 0 : number + 1 - ring.count;
    bool bad = false;
    if (threadIdx.x % kWarp == 0 && credit_ < owed) bad = !awaitCredit(peer, credit, owed);
    failed_ = __any_sync(0xffffffff, bad || failed_) != 0;  // the warp goes on together
    if (failed_) return;
    putRun(ring, number, runFlag(number), from + begin, size);
  });
  return failed_ ? Status{Code::kRemote} : Status{};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::receiveRuns(int peer, std::byte* to, size_t bytes) {
  const RunRing ring = linkRunsOf(rank(), peer);
  const uint32_t warp = threadIdx.x / kWarp;
  forEachRun(cursors_[peer].runsReceived, bytes, [&](uint64_t number, size_t begin, size_t size) {
    if (failed_ || !readRun(peer, ring, number, runFlag(number), to + begin, size).ok()) return;
    __syncwarp();
    // Loads that have returned are before any store: no fence.
    Cell* const credit = cell(near(peer, layout().runCredit(placeAt(peer, rank()), warp)));
    if (threadIdx.x % kWarp == 0) storeRelaxed(credit, {number + 1, tag_});
  });
  return failed_ ? Status{Code::kRemote} : Status{};
}

template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitCredit(int peer, const Cell* at, uint64_t owed) {
  Patience patience;
  while ((credit_ = loadRelaxed(at).low) < owed) {
    const Code code = exhausted(patience);
    if (code != Code::kOk) report(code, peer, 0);
    if (failed_) return false;
  }
  return true;
}

// Calls visit(number, begin, bytes) for the runs of this warp, of a message that begins with run `cursor` of
// the link; moves the cursor behind it.
template <typename Reducer, typename Format, int kRanks>
template <typename Visit>
__device__ void Cuda<Reducer, Format, kRanks>::forEachRun(uint64_t& cursor, size_t bytes, Visit visit) {
  constexpr uint64_t kWarps = WindowLayout::kRunCredits;
  const uint64_t runs = (bytes + WindowLayout::kRunBytes - 1) / WindowLayout::kRunBytes;
  const uint64_t warp = threadIdx.x / kWarp;
  const uint64_t first = cursor + (warp + kWarps - cursor % kWarps) % kWarps;
  for (uint64_t number = first; number < cursor + runs; number += kWarps) {
    const size_t begin = static_cast<size_t>(number - cursor) * WindowLayout::kRunBytes;
    visit(number, begin, std::min(bytes - begin, size_t{WindowLayout::kRunBytes}));
  }
  cursor += runs;
}

}  // namespace stretto::cuda
