// The verbs of the Cuda backend that move lines. Part of cuda.cuh.
//
// Threads keep several lines under way at once: of one source when there are two ranks, else of several
// sources.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// Loads that are under way together, of so many peers' lines.
inline constexpr int kPeersAtOnce = 4;

// Threads hold two units of a line, but for those with a flag.
template <typename Format>
inline constexpr bool kPairs = Format::kLineUnits > 1;

template <typename Format>
__device__ void storeLineOf(const UnitTarget& target, uint32_t unit, const Pack& value, int lane) {
  if constexpr (Format::kLamport) {
    target.storePair(unit, value);
  } else {
    target.store(unit, value.low);
    if (!holdsFlag<Format>(lane)) target.store(unit + 1, value.high);
  }
}

template <typename Reducer, typename Format, int kRanks>
template <int kLines>
__device__ void Cuda<Reducer, Format, kRanks>::loadBatch(Pack (&own)[kLines], const UnitSource& source,
                                                         const LinePart<Format> (&parts)[kLines],
                                                         int lane) const {
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    if constexpr (Format::kLamport) {
      own[i] = source.loadPair(parts[i].unit);
    } else {
      own[i].low = source.load(parts[i].unit);
      if (!holdsFlag<Format>(lane)) own[i].high = source.load(parts[i].unit + 1);
    }
  }
}

template <typename Reducer, typename Format, int kRanks>
template <int kLines>
__device__ void Cuda<Reducer, Format, kRanks>::putBatch(std::byte* lines, uint64_t flag,
                                                        const Pack (&own)[kLines],
                                                        const LinePart<Format> (&parts)[kLines],
                                                        int lane) const {
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    if (!parts[i].inside) continue;
    if constexpr (Format::kLamport) {
      storeRelaxed(lines + parts[i].at, Format::sendable(own[i]));
    } else {
      storeRelaxed(lines + parts[i].at, {own[i].low, holdsFlag<Format>(lane) ? flag : own[i].high});
    }
  }
}

// Makes Lamport lines that were read ready for the epoch after the next.
template <typename Reducer, typename Format, int kRanks>
template <int kLines>
__device__ void Cuda<Reducer, Format, kRanks>::eraseBatch(int source, Phase phase,
                                                          const LinePart<Format> (&parts)[kLines]) const {
  std::byte* const lines = linesOf(rank(), phase, source);
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    if (parts[i].inside) storePack(lines + parts[i].at, {~uint64_t{0}, ~uint64_t{0}});
  }
}

// The parts of lines that begin at `lines`, of sources from `first` on; null: there is none to wait for. A
// warp decides together.
template <typename Reducer, typename Format, int kRanks>
template <int kLines, int kSources>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitParts(Pack (&got)[kSources][kLines],
                                                          const std::byte* const (&lines)[kSources],
                                                          uint64_t flag, int first,
                                                          const LinePart<Format> (&parts)[kLines], int lane) {
  constexpr unsigned kAll = 0xffffffff;
  WaitSoFar waiting;
  while (true) {
    int late = -1;
    uint64_t seen = 0;
#pragma unroll
    for (int s = 0; s < kSources; ++s) {
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        if (lines[s] != nullptr && parts[i].inside) got[s][i] = loadRelaxed(lines[s] + parts[i].at);
      }
    }
#pragma unroll
    for (int s = 0; s < kSources; ++s) {
      if (lines[s] == nullptr) continue;
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        if (lineReady<Format>(got[s][i], flag, lane) || !parts[i].inside) continue;
        late = first + s;
        seen = got[s][i].high;
      }
    }
    if (__all_sync(kAll, late < 0)) break;
    const auto differs = [&] {
      return late >= 0 && holdsFlag<Format>(lane) && (seen ^ flag) >> kTagBits == 0;
    };
    Code code = exhausted(waiting, late, differs);
    if (__any_sync(kAll, failed_)) code = Code::kRemote;
    if (!__any_sync(kAll, code != Code::kOk)) continue;
    __syncwarp();
    // One kind of thread reports. If any thread has seen this epoch with another tag, those threads report
    // that. Otherwise the thread reports that holds the late line's flag; of Lamport lines, which have none,
    // all may.
    // Lamport lines have no tag, so nothing differs, and there must be no vote. nvcc 13.0 moved a vote with a
    // constant predicate into the branch below, which only threads with a late line enter. They then waited
    // for ever for the other threads of the warp (docs/results/2026-11-29-one-gpu).
    bool anyDiffers = false;
    if constexpr (!Format::kLamport) anyDiffers = __any_sync(kAll, differs());
    const bool knows = late >= 0 && (Format::kLamport || holdsFlag<Format>(lane));
    if (knows && !failed_ && differs() == anyDiffers) {
      report(anyDiffers          ? Code::kInvalidUsage
             : code == Code::kOk ? Code::kTimeout
                                 : code,
             late, anyDiffers ? seen : 0);
    }
    failed_ = true;
    return false;
  }
  return true;
}

// The tags of an operation in Lamport lines, by one block: a thread for each peer tells its own and looks at
// theirs. Where there may be more peers than threads all are told first: ranks come to each other at
// different times.
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::exchangeTags(int thread, int threads) {
  if (!comparesTags()) return;
  constexpr bool kThreadEach = kRanks != 0;
  static_assert(kRanks <= kWarp + 1);
  const auto notifyPeer = [&](int step) {
    storeRelaxed(mailboxAt(peerAt(step), Phase::kScatter), {epoch_, tag_});
  };
  for (int step = 1 + thread; !kThreadEach && step < ranks(); step += threads) notifyPeer(step);
  for (int step = 1 + thread; step < ranks(); step += threads) {
    if (kThreadEach) notifyPeer(step);
    const int peer = peerAt(step);
    (void)awaitMailbox(peer, mailboxFrom(peer, Phase::kScatter), epoch_, true);
  }
}

template <typename Reducer, typename Format, int kRanks>
template <int kLines>
__device__ void Cuda<Reducer, Format, kRanks>::putLinesAt(Coop coop, std::byte* lines, uint64_t flag,
                                                          const UnitSource& source) {
  forEachBatch<Format, kLines>(linesFor<Format>(source.units()), coop.rank(), coop.size(),
                               [&](const LinePart<Format>(&parts)[kLines], int lane) {
                                 Pack own[kLines] = {};
                                 loadBatch(own, source, parts, lane);
                                 putBatch(lines, flag, own, parts, lane);
                               });
}

template <typename Reducer, typename Format, int kRanks>
template <int kLines>
__device__ void Cuda<Reducer, Format, kRanks>::readLinesAt(Coop coop, int peer, const std::byte* lines,
                                                           uint64_t flag, const UnitTarget& target) {
  const std::byte* const only[1] = {lines};
  forEachBatch<Format, kLines>(linesFor<Format>(target.units()), coop.rank(), coop.size(),
                               [&](const LinePart<Format>(&parts)[kLines], int lane) {
                                 Pack got[1][kLines] = {};
                                 if (!awaitParts(got, only, flag, peer, parts, lane)) return;
#pragma unroll
                                 for (int i = 0; i < kLines; ++i) {
                                   if (parts[i].inside)
                                     storeLineOf<Format>(target, parts[i].unit, got[0][i], lane);
                                 }
                               });
}

// The lines of the sources from `first` on; null for this rank, and for those beyond the last.
template <typename Reducer, typename Format, int kRanks>
template <int kSources>
__device__ void Cuda<Reducer, Format, kRanks>::linesFrom(int first, Phase phase,
                                                         const std::byte* (&lines)[kSources]) const {
#pragma unroll
  for (int s = 0; s < kSources; ++s) {
    const bool waits = first + s < ranks() && first + s != rank();
    lines[s] = waits ? linesOf(rank(), phase, first + s) : nullptr;
  }
}

template <typename Reducer, typename Format, int kRanks>
template <typename Part>
__device__ void Cuda<Reducer, Format, kRanks>::putLinesAllAt(Coop coop, Phase phase, uint32_t lines,
                                                             Part part) {
  forEachBatch<Format, 1>(lines, coop.rank(), coop.size(), [&](const auto& parts, int lane) {
    for (int first = 1; first < ranks(); first += kPeersAtOnce) {
      Pack own[kPeersAtOnce][1] = {};
#pragma unroll
      for (int i = 0; i < kPeersAtOnce; ++i) {
        if (first + i >= ranks()) break;
        const auto [from, bytes] = part(peerAt(first + i));
        loadBatch(own[i], UnitSource(from, bytes), parts, lane);
      }
#pragma unroll
      for (int i = 0; i < kPeersAtOnce; ++i) {
        if (first + i >= ranks()) break;
        putBatch(linesAt(first + i, phase), lineFlag(), own[i], parts, lane);
      }
    }
  });
}

template <typename Reducer, typename Format, int kRanks>
template <typename Target>
__device__ void Cuda<Reducer, Format, kRanks>::readLinesAllAt(Coop coop, Phase phase, uint32_t lines,
                                                              Target target) {
  forEachBatch<Format, 1>(lines, coop.rank(), coop.size(), [&](const auto& parts, int lane) {
    for (int first = 0; first < ranks(); first += kPeersAtOnce) {
      const std::byte* from[kPeersAtOnce];
      linesFrom(first, phase, from);
      Pack got[kPeersAtOnce][1] = {};
      if (!awaitParts(got, from, lineFlag(), first, parts, lane)) return;
#pragma unroll
      for (int s = 0; s < kPeersAtOnce; ++s) {
        if (from[s] == nullptr || !parts[0].inside) continue;
        if (Format::kLamport) eraseBatch(first + s, phase, parts);
        const auto [to, bytes] = target(first + s);
        storeLineOf<Format>(UnitTarget(to, bytes), parts[0].unit, got[s][0], lane);
      }
    }
  });
}

// `take(result)` stores them.
template <typename Reducer, typename Format, int kRanks>
template <int kLines, int kSources, typename Take>
__device__ void Cuda<Reducer, Format, kRanks>::reduceBatch(const Reducer& reducer,
                                                           const LinePart<Format> (&parts)[kLines],
                                                           const Pack (&own)[kLines], int lane, Take take) {
  typename Reducer::Accumulator low[kLines], high[kLines];
  for (int first = 0; first < ranks(); first += kSources) {
    const std::byte* lines[kSources];
    linesFrom(first, Phase::kScatter, lines);
    Pack got[kSources][kLines] = {};
    if (!awaitParts(got, lines, lineFlag(), first, parts, lane)) return;
#pragma unroll
    for (int s = 0; s < kSources; ++s) {
      if (first + s >= ranks()) break;
      const bool mine = first + s == rank();
      if (Format::kLamport && !mine) eraseBatch(first + s, Phase::kScatter, parts);
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const Pack value = mine ? own[i] : got[s][i];
        if (first + s == 0) {
          low[i] = reducer.start(value.low);
          if (kPairs<Format>) high[i] = reducer.start(value.high);
        } else {
          reducer.join(low[i], value.low);
          if (kPairs<Format>) reducer.join(high[i], value.high);
        }
      }
    }
  }
  Pack result[kLines];
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    result[i] = {reducer.finish(low[i]), kPairs<Format> ? reducer.finish(high[i]) : 0};
  }
  take(result);
}

// The same between two ranks, whose order is known; Lamport lines go in turns then (cuda_turns.cuh).
template <typename Reducer, typename Format, int kRanks>
template <int kLines>
__device__ void Cuda<Reducer, Format, kRanks>::reducePair(const Reducer& reducer, const UnitTarget& target,
                                                          const LinePart<Format> (&parts)[kLines],
                                                          const Pack (&own)[kLines], int lane) {
  Pack got[1][kLines] = {};
  const int peer = 1 - rank();
  const std::byte* const lines[1] = {linesOf(rank(), Phase::kScatter, peer)};
  if (!awaitParts(got, lines, lineFlag(), peer, parts, lane)) return;
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    if (!parts[i].inside) continue;
    const Pack first = peer == 0 ? got[0][i] : own[i];
    const Pack second = peer == 0 ? own[i] : got[0][i];
    auto low = reducer.start(first.low);
    reducer.join(low, second.low);
    if constexpr (!kPairs<Format>) {
      target.store(parts[i].unit, reducer.finish(low));
      continue;
    }
    auto high = reducer.start(first.high);
    reducer.join(high, second.high);
    storeLineOf<Format>(target, parts[i].unit, {reducer.finish(low), reducer.finish(high)}, lane);
  }
}

// One pass over the lines, kLines of this thread's at a time, which `reduceOne` reduces.
template <typename Reducer, typename Format, int kRanks>
template <bool put, int kLines, typename ReduceOne>
__device__ void Cuda<Reducer, Format, kRanks>::passLines(Coop coop, const UnitSource& source,
                                                         ReduceOne reduceOne) {
  const uint32_t lines = linesFor<Format>(source.units());
  const uint32_t atOnce = static_cast<uint32_t>(kLines * coop.size() / Format::kLineThreads);
  const bool mixed = put && lines <= atOnce;
  if (put && !mixed) {
    for (int step = 1; step < ranks(); ++step) {
      putLines(coop, peerAt(step), source.begin, source.bytes);
    }
  }
  forEachBatch<Format, kLines>(lines, coop.rank(), coop.size(),
                               [&](const LinePart<Format>(&parts)[kLines], int lane) {
                                 Pack own[kLines] = {};
                                 loadBatch(own, source, parts, lane);
#pragma unroll(kPeers)
                                 for (int step = 1; mixed && step < ranks(); ++step) {
                                   putBatch(linesAt(step, Phase::kScatter), lineFlag(), own, parts, lane);
                                 }
                                 reduceOne(parts, own, lane);
                               });
}

template <typename Reducer, typename Format, int kRanks>
template <bool put>
__device__ Status Cuda<Reducer, Format, kRanks>::inLines(Coop coop, const ReduceSpec& spec, std::byte* to,
                                                         const std::byte* own, size_t bytes) {
  static_assert(!kTurns, "these go in turns");
  constexpr int kAtOnce = kSourcesAtOnce<Reducer>;
  if (Format::kLamport && coop.rank() >= coop.size()) {
    exchangeTags(coop.rank() - coop.size(), kWarp);
    return failed_ ? Status{Code::kRemote} : Status{};
  }
  const Reducer reducer(spec);
  const UnitSource source(own, bytes);
  const UnitTarget target(to, bytes);
  if constexpr (kRanks == 2) {
    constexpr int kPair = std::is_same_v<Reducer, AnyReducer> ? 1 : Format::kPairLines;
    const auto reduceOne = [&](const auto& parts, const auto& mine, int lane) {
      reducePair<kPair>(reducer, target, parts, mine, lane);
    };
    passLines<put, kPair>(coop, source, reduceOne);
  } else {
    passLines<put, 1>(coop, source, [&](const auto& parts, const auto& mine, int lane) {
      reduceBatch<1, kAtOnce>(reducer, parts, mine, lane, [&](const auto& result) {
        if (parts[0].inside) storeLineOf<Format>(target, parts[0].unit, result[0], lane);
      });
    });
  }
  return failed_ ? Status{Code::kRemote} : Status{};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::reducePutLines(Coop coop, const ReduceSpec& spec,
                                                                std::byte* to, const std::byte* own,
                                                                size_t bytes, size_t most,
                                                                int only) requires(Has::kFansLines) {
  if constexpr (Format::kWarpChunks) {
    return reducePutWarpChunk(spec, to, own, bytes, only);
  } else if (Format::kLamport && coop.rank() >= coop.size()) {
    exchangeTags(coop.rank() - coop.size(), kWarp);
  } else {
    const Reducer reducer(spec);
    const UnitSource source(own, bytes);
    const UnitTarget target(to, to == nullptr ? 0 : bytes);
    forEachBatch<Format, 1>(
        linesForBytes<Format>(most), coop.rank(), coop.size(), [&](const auto& parts, int lane) {
          Pack mine[1] = {};
          loadBatch(mine, source, parts, lane);
          reduceBatch<1, kSourcesAtOnce<Reducer>>(reducer, parts, mine, lane, [&](const auto& result) {
#pragma unroll(kPeers)
            for (int step = 1; step < ranks(); ++step) {
              if (only >= 0 && peerAt(step) != only) continue;
              putBatch(linesAt(step, Phase::kGather), lineFlag(), result, parts, lane);
            }
            if (parts[0].inside) storeLineOf<Format>(target, parts[0].unit, result[0], lane);
          });
        });
    // An empty line says that all of this chunk has been read, by whomever.
    if (only >= 0) coop.sync();
    for (int step = 1; only >= 0 && step < ranks(); ++step) {
      if (peerAt(step) != only) putLines(coop, peerAt(step), nullptr, 0, Phase::kGather);
    }
  }
  return failed_ ? Status{Code::kRemote} : Status{};
}

}  // namespace stretto::cuda
