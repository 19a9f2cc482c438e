// Several buffers reduced into several, by the copy unit of the multiprocessor: it brings tiles of the inputs
// into shared memory, and takes those of the result from there to wherever they belong. Threads wait for no
// memory but that, so few blocks keep a link busy. For kernels.
//
//   copied in     by the first warp     a tile of every input, into a stage that is empty
//   reduced       by all other warps    into the place of the first, in rank order
//   copied out    by the second warp    to all results; once it has been read, the stage is empty
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// What a block is launched with.
inline constexpr int kTileThreads = 32 * (2 + 8);
inline constexpr size_t kTileBytes = size_t{192} << 10;

// At whole packs, of whole packs.
struct TiledBuffers {
  const std::byte* const* sources;  // by rank, as all
  std::byte* const* results;
  size_t begin;  // byte of each
  size_t bytes;
};

struct TileShared : BlockShared {
  static constexpr int kMostTileStages = 16;
  PhaseBarrier come[kMostTileStages];  // by stage
  PhaseBarrier reduced[kMostTileStages];
  PhaseBarrier empty[kMostTileStages];

  // By all threads, before a barrier.
  __device__ void prepare() {
    if (threadIdx.x >= kMostTileStages) return;
    stretto::cuda::prepare(come[threadIdx.x], 1);
    stretto::cuda::prepare(reduced[threadIdx.x], kTileThreads / 32 - 2);
    stretto::cuda::prepare(empty[threadIdx.x], 1);
  }
};

template <typename Reducer, typename Format>
class Tiles {
 public:
  using Backend = Cuda<Reducer, Format>;

  __device__ Tiles(Backend& b, TileShared& shared, const TiledBuffers& buffers)
      : b_(b), shared_(shared), buffers_(buffers), ranks_(static_cast<uint32_t>(b.ranks())) {
    const auto bytes = [&] { return size_t{1} << shift_; };
    while (shift_ > kLeastShift &&
           (bytes() * ranks_ * kLeastStages > kTileBytes || bytes() * kTilesOfShare > buffers.bytes)) {
      --shift_;
    }
    stages_ = std::min<uint32_t>(TileShared::kMostTileStages, kTileBytes / (bytes() * ranks_));
    count_ = static_cast<uint32_t>((buffers.bytes + bytes() - 1) / bytes());
  }

  // Once in a kernel, by every thread of the block. When it returns, results are where they belong, for who
  // is told so by a fence of this block.
  __device__ Status run(const ReduceSpec& spec) {
    const bool isFirst = threadIdx.x % kWarp == 0;
    const unsigned warp = threadIdx.x / kWarp;
    bool fine = true;
    if (warp > 1) {
      fine = reduce(Reducer(spec));
    } else if (isFirst) {
      fine = warp == 0 ? copyAllIn() : copyAllOut();
    }
    __syncwarp();
    return b_.agree(fine);
  }

 private:
  static constexpr uint32_t kWarp = 32;
  static constexpr uint32_t kMostShift = 14, kLeastShift = 11;
  static constexpr uint32_t kLeastStages = 6;   // of the largest tiles
  static constexpr uint32_t kTilesOfShare = 8;  // so that stages overlap

  // A tile, and where it is in turn: counted, as one thread that divides takes longer than the copies.
  struct Turn {
    uint32_t tile = 0, stage = 0, round = 0;
    __device__ void goOn(uint32_t stages) {
      ++tile;
      if (++stage < stages) return;
      stage = 0;
      ++round;
    }
  };
  __device__ size_t beginOf(uint32_t tile) const { return size_t{tile} << shift_; }
  __device__ uint32_t sizeOf(uint32_t tile) const {
    return static_cast<uint32_t>(std::min<size_t>(size_t{1} << shift_, buffers_.bytes - beginOf(tile)));
  }
  __device__ std::byte* at(uint32_t stage, uint32_t rank) const {
    return launchShared() + ((stage * ranks_ + rank) << shift_);
  }
  __device__ bool await(const PhaseBarrier& barrier, uint32_t round) const {
    return b_.awaitStage([&] { return hasEnded(barrier, round); });
  }
  // Ranks after this one first, so that not all talk to the same; this one last.
  template <typename Visit>
  __device__ void forEachRank(Visit visit) const {
    const int own = b_.rank(), ranks = b_.ranks();
    for (int rank = own + 1; rank < ranks; ++rank) visit(rank);
    for (int rank = 0; rank <= own; ++rank) visit(rank);
  }

  __device__ bool copyAllIn() {
    fenceCopies();  // the barriers, and what the inputs hold
    Turn turn;
    for (; turn.tile < count_; turn.goOn(stages_)) {
      if (turn.round > 0 && !await(shared_.empty[turn.stage], turn.round - 1)) break;
      const uint32_t size = sizeOf(turn.tile);
      const size_t begin = buffers_.begin + beginOf(turn.tile);
      PhaseBarrier& come = shared_.come[turn.stage];
      arriveAwaiting(come, size * ranks_);
      forEachRank([&](int rank) {
        copyIn(at(turn.stage, static_cast<uint32_t>(rank)), buffers_.sources[rank] + begin, size, come);
      });
    }
    // What is under way comes, as what a load waits for does. It must not after the kernel's end, and who
    // else waits for it may have given up, also when all tiles were asked for.
    for (uint32_t last = turn.tile - std::min(turn.tile, stages_); last < turn.tile; ++last) {
      while (!hasEnded(shared_.come[last % stages_], last / stages_)) {
      }
    }
    return turn.tile == count_;
  }

  __device__ bool copyAllOut() {
    Turn turn, before;
    for (; turn.tile < count_ && await(shared_.reduced[turn.stage], turn.round); turn.goOn(stages_)) {
      const uint32_t size = sizeOf(turn.tile);
      const size_t begin = buffers_.begin + beginOf(turn.tile);
      forEachRank([&](int rank) { copyOut(buffers_.results[rank] + begin, at(turn.stage, 0), size); });
      endCopies();
      awaitRead<1>();  // the tile before: this one is left to go on
      if (turn.tile > 0) arrive(shared_.empty[before.stage]);
      before = turn;
    }
    awaitWritten();
    fenceCopies();
    return turn.tile == count_;
  }

  __device__ bool reduce(const Reducer& reducer) {
    const uint32_t thread = threadIdx.x - 2 * kWarp;
    for (Turn turn; turn.tile < count_; turn.goOn(stages_)) {
      const bool come = await(shared_.come[turn.stage], turn.round);
      if (__all_sync(0xffffffff, come) == 0) return false;
      const uint32_t packs = sizeOf(turn.tile) / sizeof(Pack);
      constexpr uint32_t kStep = kTileThreads - 2 * kWarp;
      for (uint32_t pack = thread; pack < packs; pack += kPacks * kStep) {
        reducePacks<kStep>(reducer, at(turn.stage, 0), pack, packs);
      }
      fenceSharedCopies();
      __syncwarp();
      if (thread % kWarp == 0) arrive(shared_.reduced[turn.stage]);
    }
    return true;
  }
  // As reduceBytes() does it, in order of ranks.
  static constexpr int kPacks = 4;
  template <uint32_t step>
  __device__ void reducePacks(const Reducer& reducer, std::byte* tiles, uint32_t first, uint32_t packs) {
    const auto place = [=](int i) { return first + static_cast<uint32_t>(i) * step; };
    typename Reducer::Accumulator low[kPacks], high[kPacks];
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      Pack loaded[kPacks] = {};
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (place(i) < packs) loaded[i] = loadShared(tiles + (rank << shift_) + place(i) * sizeof(Pack));
      }
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (rank == 0) {
          low[i] = reducer.start(loaded[i].low);
          high[i] = reducer.start(loaded[i].high);
        } else {
          reducer.join(low[i], loaded[i].low);
          reducer.join(high[i], loaded[i].high);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (place(i) >= packs) continue;
      storeShared(tiles + place(i) * sizeof(Pack), {reducer.finish(low[i]), reducer.finish(high[i])});
    }
  }

  Backend& b_;
  TileShared& shared_;
  const TiledBuffers buffers_;
  const uint32_t ranks_;
  uint32_t shift_ = kMostShift;  // bytes of a tile, a power of two
  uint32_t stages_;
  uint32_t count_;
};

}  // namespace stretto::cuda
