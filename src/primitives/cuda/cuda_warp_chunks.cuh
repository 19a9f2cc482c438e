// The verbs of the Cuda backend that move warp chunks. Part of cuda.cuh. A coop is one warp here, and a warp
// chunk is one epoch: the warp copies it, and one of its threads then stores the flag with release order; the
// reader's warp acquires the flag first. No two warps of a stage wait for each other, so there are always
// some that move bytes while others wait for a fence.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::putWarpChunk(const WarpChunkRing& ring, uint64_t number,
                                                            uint64_t flag, const std::byte* from,
                                                            size_t bytes) const {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (bytes != 0) copyBytes(ring.data(number), from, bytes, lane, kWarp);
  __syncwarp();
  if (lane == 0) storeRelease(ring.flag(number), flag);
}

// By one thread: true when the warp chunk has come. Its number with another tag stays: the peer runs another
// operation.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitFlag(int peer, const uint64_t* at, uint64_t flag) {
  WaitSoFar waiting;
  uint64_t seen = loadAcquire(at);
  while (seen != flag && !failed_) {
    const Code code = exhausted(waiting, peer);
    const bool differs = (seen ^ flag) >> kTagBits == 0;
    if (differs || code != Code::kOk) report(differs ? Code::kInvalidUsage : code, peer, differs ? seen : 0);
    seen = loadAcquire(at);
  }
  return seen == flag && !failed_;
}

// What a warp has voted holds for all of it, and so does what one of its threads has acquired: a vote alone
// orders no memory.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::agreed(bool fine) {
  __syncwarp();
  failed_ = failed_ || !fine;
  return fine;
}

// The same as awaitFlag() for the whole warp.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitWarpChunk(int peer, const uint64_t* at, uint64_t flag) {
  bool come = threadIdx.x % kWarp != 0 || awaitFlag(peer, at, flag);
  return agreed(__shfl_sync(0xffffffff, come, 0) != 0);
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::readWarpChunk(int peer, const WarpChunkRing& ring,
                                                               uint64_t number, uint64_t flag, std::byte* to,
                                                               size_t bytes) {
  if (!awaitWarpChunk(peer, ring.flag(number), flag)) return Status{Code::kRemote};
  if (bytes != 0) copyBytes(to, ring.data(number), bytes, static_cast<int>(threadIdx.x % kWarp), kWarp);
  return {};
}

// One lane looks for each peer's, so that the warp waits once.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitWarpChunkAll(Phase phase) {
  bool come = !failed_;
  for (int step = 1 + static_cast<int>(threadIdx.x % kWarp); come && step < ranks(); step += kWarp) {
    const int peer = peerAt(ranks() - step);
    come = awaitFlag(peer, warpChunksOf(rank(), phase, peer).flag(epoch_), lineFlag());
  }
  return agreed(__all_sync(0xffffffff, come) != 0);
}

template <typename Reducer, typename Format, int kRanks>
__device__ Parts Cuda<Reducer, Format, kRanks>::warpChunkRow(Phase phase) const {
  const WarpChunkRing first{nullptr, layout().warpChunks, layout().warpChunkBytes};
  return {warpChunksBegin_ + layout().warpChunksOf(phase, 0) + size_t{first.slot(epoch_)} * first.bytes,
          layout().warpChunksOf(phase, 1) - layout().warpChunksOf(phase, 0)};
}

template <typename Reducer, typename Format, int kRanks>
__device__ auto Cuda<Reducer, Format, kRanks>::operandsIn(const Parts& row, const std::byte* own) const {
  const std::byte* const here = window(rank());
  return Computed{
      [=, rank = rank()](int source) { return source == rank ? own : here + row.at(indexAt(rank, source)); }};
}

template <typename Reducer, typename Format, int kRanks>
__device__ auto Cuda<Reducer, Format, kRanks>::targetsIn(const Parts& row, std::byte* to, int only) const {
  const Computed pushed{[=, this](int index) {
    const int peer = only < 0 ? peerAt(index + 1) : only;
    return window(peer) + row.at(indexAt(peer, rank()));
  }};
  int count = only < 0 ? ranks() - 1 : only == rank() ? 0 : 1;
  if (to == nullptr) to = pushed[--count];
  return Targets{to, pushed, count};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::reduceWarpChunk(const ReduceSpec& spec, std::byte* to,
                                                                 const std::byte* own, size_t bytes) {
  if (!awaitWarpChunkAll(Phase::kScatter)) return Status{Code::kRemote};
  reduceBytes(Reducer(spec), Destinations{to}, operandsIn(warpChunkRow(Phase::kScatter), own), ranks(), bytes,
              static_cast<int>(threadIdx.x % kWarp), kWarp);
  return {};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::reducePutWarpChunk(const ReduceSpec& spec, std::byte* to,
                                                                    const std::byte* own, size_t bytes,
                                                                    int only) {
  if (!awaitWarpChunkAll(Phase::kScatter)) return Status{Code::kRemote};
  reduceBytes(Reducer(spec), targetsIn(warpChunkRow(Phase::kGather), to, only),
              operandsIn(warpChunkRow(Phase::kScatter), own), ranks(), bytes,
              static_cast<int>(threadIdx.x % kWarp), kWarp);
  flagWarpChunkAll(Phase::kGather);
  return {};
}

// Announces to every peer what this warp has put into the peer's warp chunk: a barrier of the warp, and then
// one release store for each peer. In the gather phase the chunks of the scatter phase have been read, so
// their read marks are stored first, without release.
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::flagWarpChunkAll(Phase phase) const {
  if (phase == Phase::kGather) markRead(Phase::kScatter);
  __syncwarp();
  for (int step = 1 + static_cast<int>(threadIdx.x % kWarp); step < ranks(); step += kWarp) {
    storeRelease(warpChunksOf(peerAt(step), phase, rank()).flag(epoch_), lineFlag());
  }
}

template <typename Reducer, typename Format, int kRanks>
template <typename Part>
__device__ void Cuda<Reducer, Format, kRanks>::putWarpChunkAll(Phase phase, Part part) {
  for (int first = 1; first < ranks(); first += kPeersAtOnce) {
    SideBySide<kPeersAtOnce> copies;
#pragma unroll
    for (int i = 0; i < kPeersAtOnce; ++i) {
      if (first + i >= ranks()) continue;
      const int peer = peerAt(first + i);
      const auto [from, bytes] = part(peer);
      copies.set(i, warpChunksOf(peer, phase, rank()).data(epoch_), from, bytes);
    }
    copies.run(static_cast<int>(threadIdx.x % kWarp), kWarp);
  }
  flagWarpChunkAll(phase);
}

template <typename Reducer, typename Format, int kRanks>
template <typename Target>
__device__ void Cuda<Reducer, Format, kRanks>::readWarpChunkAll(Phase phase, Target target) {
  if (!awaitWarpChunkAll(phase)) return;
  for (int first = 1; first < ranks(); first += kPeersAtOnce) {
    SideBySide<kPeersAtOnce> copies;
#pragma unroll
    for (int i = 0; i < kPeersAtOnce; ++i) {
      if (first + i >= ranks()) continue;
      const int peer = peerAt(first + i);
      const auto [to, bytes] = target(peer);
      copies.set(i, to, warpChunksOf(rank(), phase, peer).data(epoch_), bytes);
    }
    copies.run(static_cast<int>(threadIdx.x % kWarp), kWarp);
  }
}

template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitRead(Phase phase) {
  if (epoch_ <= layout().warpChunks) return true;
  bool free = !failed_;
  for (int step = 1 + static_cast<int>(threadIdx.x % kWarp); free && step < ranks(); step += kWarp) {
    const uint64_t* const read = readMarkOf(rank(), phase, peerAt(step));
    WaitSoFar waiting;
    while (!failed_ && loadRelaxed64(read) < epoch_ - layout().warpChunks) {
      const Code code = exhausted(waiting, peerAt(step));
      if (code != Code::kOk) report(code, peerAt(step), 0);
    }
    free = !failed_;
  }
  return agreed(__all_sync(0xffffffff, free) != 0);
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::markRead(Phase phase) const {
  __syncwarp();
  // Relaxed: every value that was loaded has been used before this, and the hardware performs a warp's later
  // stores after that. PTX's memory model does not promise it.
  for (int step = 1 + static_cast<int>(threadIdx.x % kWarp); step < ranks(); step += kWarp) {
    storeRelaxed64(readMarkOf(peerAt(step), phase, rank()), epoch_);
  }
}

// Warp w of each stage has chunks w, w + warps, ...; a stage of a chunk begins when the same warp of the
// stage before has done it. Stage s sends in phase s, when there is room, and reads what came in the phase
// before.
template <typename Reducer, typename Format, int kRanks>
template <typename... Stages>
__device__ Status Cuda<Reducer, Format, kRanks>::pipelineOfWarps(size_t chunks, Stages... stages) {
  constexpr int kStages = sizeof...(Stages);
  // Two ranks keep to half a ring instead of read marks, whatever kernel serves them: those for two and those
  // for any number walk the same rings.
  const bool halfRing = ranks() == 2;
  const int most = static_cast<int>(layout().warpChunks) / 2;  // a warp fills one while another is read
  const int warps = std::min(coop_.count / kStages / kWarp, most);
  const uint32_t ahead = halfRing ? layout().warpChunks / (2 * static_cast<uint32_t>(warps)) : ~0u;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int mine = warp / warps;
  const int inStage = warp % warps;
  const uint64_t before = epoch_;
  const Coop whole = coop_;
  if (threadIdx.x < BlockShared::kMostWarps * BlockShared::kMostStages) shared_.done[threadIdx.x] = 0;
  __syncthreads();
  coop_ = {warp * kWarp, kWarp, Threads::kOneWarp};
  Status status;
  uint32_t turn = 0;
  for (size_t chunk = static_cast<size_t>(inStage); mine < kStages && chunk < chunks && status.ok();
       chunk += static_cast<size_t>(warps), ++turn) {
    const int awaited = (mine == 0 ? kStages - 1 : mine - 1) * BlockShared::kMostWarps + inStage;
    const uint32_t needed = mine != 0 ? turn + 1 : turn + 1 > ahead ? turn + 1 - ahead : 0;
    // Bounded: the warp waited for ends by its own deadline, and says so.
    while (loadShared(shared_.done[awaited]) < needed && loadShared(shared_.failed) == 0) {
    }
    __syncwarp();
    if (__any_sync(0xffffffff, loadShared(shared_.failed) != 0)) break;
    fenceBlock();
    epoch_ = before + chunk + 1;
    if (!halfRing && mine + 1 < kStages && !awaitRead(static_cast<Phase>(mine))) break;
    int stage = 0;
    ((stage++ == mine ? (void)(status = stages(chunk)) : (void)0), ...);
    if (!halfRing && mine + 1 == kStages && status.ok()) {
      // All phases of the ring count the same epochs. The last stage also marks those phases as read that
      // this operation does not have, or the next operation that has them would wait for ever.
      for (uint32_t phase = kStages - 2; phase < layout().linePhases; ++phase)
        markRead(static_cast<Phase>(phase));
    }
    __syncwarp();
    fenceBlock();
    if (threadIdx.x % kWarp == 0)
      storeShared(shared_.done[mine * BlockShared::kMostWarps + inStage], turn + 1);
  }
  coop_ = whole;
  __syncthreads();
  epoch_ = before + chunks;
  return shared_.failed != 0 ? Status{Code::kRemote} : Status{};
}

// A message of a link, warp chunk by warp chunk; warps take turns, by the number that a warp chunk has on the
// link. The sender's warp waits for the credit of the receiver's that had the same index in the ring before.
template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::sendWarpChunks(int peer, const std::byte* from,
                                                                size_t bytes) {
  const WarpChunkRing ring = linkChunksOf(peer, rank());
  forEachWarpChunk(cursor_, bytes, [&](uint64_t number, size_t begin, size_t size) {
    if (!awaitRoom(peer, number)) return;
    noteSize(ring, number, size);
    putWarpChunk(ring, number, warpChunkFlag(number), from + begin, size);
  });
  return failed_ ? Status{Code::kRemote} : Status{};
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::receiveWarpChunks(int peer, std::byte* to, size_t bytes) {
  const WarpChunkRing ring = linkChunksOf(rank(), peer);
  forEachWarpChunk(cursor_, bytes, [&](uint64_t number, size_t begin, size_t size) {
    if (failed_ || !readWarpChunk(peer, ring, number, warpChunkFlag(number), to + begin, size).ok()) return;
    giveCredit(peer, number);
  });
  return failed_ ? Status{Code::kRemote} : Status{};
}

// By the whole warp: true when there is room for warp chunk `number` of a link.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitRoom(int peer, uint64_t number) {
  const uint64_t owed = number < layout().linkWarpChunks ? 0 : number + 1 - layout().linkWarpChunks;
  const Mailbox* const credit = creditFrom(peer, number);
  WaitSoFar waiting;
  while (threadIdx.x % kWarp == 0 && !failed_ && loadRelaxed(credit).low < owed) {
    const Code code = exhausted(waiting, peer);
    if (code != Code::kOk) report(code, peer, 0);
  }
  return agreed(__any_sync(0xffffffff, failed_) == 0);
}

// Relaxed, as in markRead().
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::giveCredit(int sender, uint64_t number) const {
  Mailbox* const credit = mailbox(near(sender, layout().warpChunkCredit(indexAt(sender, rank()), number)));
  __syncwarp();
  if (threadIdx.x % kWarp == 0) storeRelaxed(credit, {number + 1, tag_});
}

// Why the tag has the number of operations in it that the channel has finished:
//
//   1. Two ranks call a broadcast, and each names itself as the root. Both send, and nobody receives. The
//      chunks stay in the links.
//   2. The next broadcast is called alike on both ranks, so its own tag may be that of a chunk that stayed.
//   3. All ranks that agree have finished equally many operations on a channel, and more with each. So the
//      chunk's tag differs, and the receiver reports that the ranks disagree.
template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::beginLinks() requires(Format::kLinks) {
  tag_ += state_.finished * 0x9e3779b97f4a7c15u;
  for (int peer = static_cast<int>(threadIdx.x % kWarp); peer < ranks(); peer += kWarp) {
    const ChunkCursors link = state_.links[peer];
    cursors(peer) = {link.sent + untilMine(link.sent), link.received + untilMine(link.received)};
  }
  __syncwarp();
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::acquireLink(int peer, size_t bytes,
                                                             std::byte*& data) requires(Format::kLinks) {
  const uint64_t number = cursors(peer).sent;
  const WarpChunkRing ring = linkChunksOf(peer, rank());
  data = ring.data(number);
  if (!awaitRoom(peer, number)) return Status{Code::kRemote};
  noteSize(ring, number, bytes);
  return {};
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::publishLink(int peer) requires(Format::kLinks) {
  const uint64_t number = cursors(peer).sent;
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    storeRelease(linkChunksOf(peer, rank()).flag(number), warpChunkFlag(number));
    cursors(peer).sent = number + Format::kLinkWarps;
  }
  __syncwarp();
}

template <typename Reducer, typename Format, int kRanks>
__device__ Status Cuda<Reducer, Format, kRanks>::awaitLink(int peer,
                                                           const std::byte*& data) requires(Format::kLinks) {
  const WarpChunkRing ring = linkChunksOf(rank(), peer);
  const uint64_t number = cursors(peer).received;
  data = ring.data(number);
  return awaitWarpChunk(peer, ring.flag(number), warpChunkFlag(number)) ? Status{} : Status{Code::kRemote};
}

template <typename Reducer, typename Format, int kRanks>
__device__ void Cuda<Reducer, Format, kRanks>::releaseLink(int peer) requires(Format::kLinks) {
  const uint64_t number = cursors(peer).received;
  giveCredit(peer, number);
  if (threadIdx.x % kWarp == 0) cursors(peer).received = number + Format::kLinkWarps;
  __syncwarp();
}

// Calls visit(number, begin, bytes) for the warp chunks of this warp, of a message that begins with warp
// chunk `cursor` of the link; moves the cursor behind it.
template <typename Reducer, typename Format, int kRanks>
template <typename Visit>
__device__ void Cuda<Reducer, Format, kRanks>::forEachWarpChunk(uint64_t& cursor, size_t bytes, Visit visit) {
  constexpr uint64_t kWarps = WindowLayout::kWarpChunkCredits;
  const size_t most = layout().linkChunk;
  const uint64_t runs = (bytes + most - 1) / most;
  const uint64_t warp = threadIdx.x / kWarp;
  const uint64_t first = cursor + (warp + kWarps - cursor % kWarps) % kWarps;
  for (uint64_t number = first; number < cursor + runs; number += kWarps) {
    const size_t begin = static_cast<size_t>(number - cursor) * most;
    visit(number, begin, std::min(bytes - begin, most));
  }
  cursor += runs;
}

}  // namespace stretto::cuda
