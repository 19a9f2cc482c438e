// The verbs of the Cuda backend that move runs. Part of cuda.cuh. A warp takes a run at a time: it copies it,
// and one of its threads then stores the flag with release order; the reader's warp acquires the flag first.
// No two warps wait for each other, so there are always some that move bytes while others wait for a fence.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// Runs that `bytes` take, at least one; that one may be empty.
__device__ inline uint32_t runsFor(size_t bytes) {
  return static_cast<uint32_t>(std::max<size_t>(1, (bytes + RunLines::kRunBytes - 1) / RunLines::kRunBytes));
}

// Calls visit(run, begin, bytes, lane) for the runs of this thread's warp.
template <typename Visit>
__device__ void forEachRun(size_t bytes, int thread, int threads, Visit visit) {
  constexpr int kWarp = 32;
  const uint32_t runs = runsFor(bytes);
  for (uint32_t run = static_cast<uint32_t>(thread / kWarp); run < runs;
       run += static_cast<uint32_t>(threads / kWarp)) {
    const size_t begin = size_t{run} * RunLines::kRunBytes;
    visit(run, begin, begin < bytes ? std::min(bytes - begin, size_t{RunLines::kRunBytes}) : 0,
          thread % kWarp);
  }
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::putRuns(Coop coop, const RunPlace& place, uint64_t flag,
                                                       const std::byte* from, size_t bytes) {
  forEachRun(bytes, coop.rank(), coop.size(), [&](uint32_t run, size_t begin, size_t size, int lane) {
    if (size != 0) copyBytes(place.data + begin, from + begin, size, lane, kWarp);
    __syncwarp();
    if (lane == 0) storeRelease(place.flags + run, flag);
  });
}

// True when the run has come; the same for the whole warp.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitRun(int peer, const uint64_t* at, uint64_t flag,
                                                        int lane) {
  bool come = true;
  if (lane == 0) {
    Patience patience;
    uint64_t seen = loadAcquire(at);
    while (seen != flag && !failed_) {
      const Code code = exhausted(patience);
      const bool differs = (seen ^ flag) >> kTagBits == 0;
      if (code != Code::kOk) report(differs ? Code::kInvalidUsage : code, peer, differs ? seen : 0);
      seen = loadAcquire(at);
    }
    come = seen == flag;
  }
  come = __shfl_sync(0xffffffff, come, 0) != 0;
  failed_ = failed_ || !come;
  return come;
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::readRuns(Coop coop, int peer, const RunPlace& place,
                                                        uint64_t flag, std::byte* to, size_t bytes) {
  forEachRun(bytes, coop.rank(), coop.size(), [&](uint32_t run, size_t begin, size_t size, int lane) {
    if (!awaitRun(peer, place.flags + run, flag, lane) || size == 0) return;
    copyBytes(to + begin, place.data + begin, size, lane, kWarp);
  });
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::reduceRuns(Coop coop, const ReduceSpec& spec, std::byte* to,
                                                          const std::byte* own, size_t bytes) {
  const Reducer reducer(spec);
  const uint64_t flag = lineFlag();
  forEachRun(bytes, coop.rank(), coop.size(), [&](uint32_t run, size_t begin, size_t size, int lane) {
    const std::byte* sources[kRanks != 0 ? kRanks : kMaxRanks];
    for (int source = 0; source < ranks(); ++source) {
      if (source == rank()) {
        sources[source] = own + begin;
        continue;
      }
      const RunPlace place = runsOf(rank(), source);
      if (!awaitRun(source, place.flags + run, flag, lane)) return;
      sources[source] = place.data + begin;
    }
    reduceBytes(reducer, {to + begin}, sources, ranks(), size, lane, kWarp);
  });
}

// Every thread waits for the credit by itself, and remembers how much there was.
template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::putLink(Coop coop, int peer, uint64_t chunk, uint64_t owed,
                                                         const void* from, size_t bytes) {
  Patience patience;
  while (credit_ < owed && !failed_) {
    credit_ = loadRelaxed(creditFrom(peer)).low;
    if (const Code code = exhausted(patience); credit_ < owed && code != Code::kOk) report(code, peer, 0);
  }
  if (__any_sync(0xffffffff, failed_)) return Status{Code::kRemote};
  putRuns(coop, linkRuns(peer, rank(), chunk), linkFlag(chunk), static_cast<const std::byte*>(from), bytes);
  return {};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::readLink(Coop coop, int peer, uint64_t chunk, void* to,
                                                          size_t bytes) {
  readRuns(coop, peer, linkRuns(rank(), peer, chunk), linkFlag(chunk), static_cast<std::byte*>(to), bytes);
  return verdict(coop, failed_);
}

}  // namespace stretto::cuda
