// Lines: payload and readiness in one store, so that neither signal nor fence is needed. Three formats:
//
//   LL      16 bytes: one unit of payload and the flag. Both halves are seen together because the store is
//           one single-copy atomic access (PTX "b128").
//
//   LL128   128 bytes: fifteen units and the flag, stored by eight neighbouring threads in one instruction.
//           That a warp's aligned 128 bytes arrive as one is no promise of the PTX model but a property of
//           NVLink and of the memory behind it; NCCL's LL128 rests on it as well, on the same GPUs.
//           Where it does not hold, the planner must not choose this format.
//
//   Lamport 16 bytes of payload and no flag: a first word of all ones means that nothing has come yet. No
//           element is sent that looks so: all ones is a NaN in the formats that use this, and any NaN will
//           do for a NaN, since a reducer's result has one of its own. Who has read a line puts the ones
//           back, which must be ordered before an operation's next round; and the tags, for which there is no
//           room, travel beside the data.
//
// A flag holds the epoch and the operation's tag, so that no line of another epoch is ever taken for this
// one. Formats never share memory: one's payload could look like the other's flag.
#pragma once

#include "primitives/cuda/copy.cuh"
#include "primitives/cuda/state.hpp"

namespace stretto::cuda {

// What a format is unless it says otherwise.
struct AnyFormat {
  static constexpr bool kLL128 = false;
  static constexpr bool kLamport = false;
  static constexpr bool kWarpChunks = false;
  static constexpr bool kLinks = false;
  static constexpr bool kNorms = false;
  static constexpr bool kWhole = false;
  static constexpr int kLinkWarps = 1;
  static constexpr uint32_t kSets = 0;  // of lines, which epochs use in turn; 0: as many as slots
  static constexpr int kAtOnce = 2;     // lines that a thread puts or reads at once,
  static constexpr int kPairLines = 2;  // or reduces, between two ranks; both measured
};

struct LLFormat : AnyFormat {
  static constexpr size_t kLineBytes = 16;
  static constexpr size_t kLineUnits = 1;
  static constexpr int kLineThreads = 1;

  __device__ static uint32_t begin(const Regions& regions) { return regions.lines; }
  __device__ static uint32_t region(const WindowLayout& layout) { return layout.lineRegion; }
  __device__ static size_t lineBytes(const WindowLayout& layout) { return linePayload(layout); }
};

struct LL128Format : AnyFormat {
  static constexpr int kAtOnce = 4;
  static constexpr size_t kLineBytes = 128;
  static constexpr size_t kLineUnits = 15;
  static constexpr int kLineThreads = 8;
  static constexpr bool kLL128 = true;

  __device__ static uint32_t begin(const Regions& regions) { return regions.ll128; }
  __device__ static uint32_t region(const WindowLayout& layout) { return layout.ll128Region; }
  __device__ static size_t lineBytes(const WindowLayout& layout) { return ll128Payload(layout); }
};

struct LamportFormat : AnyFormat {
  static constexpr size_t kLineBytes = 16;
  static constexpr size_t kLineUnits = 2;
  static constexpr int kLineThreads = 1;
  static constexpr bool kLamport = true;
  static constexpr uint32_t kSets = WindowLayout::kSlots;
  static constexpr uint32_t kAbsent = 0xffffffff;

  __device__ static uint32_t begin(const Regions& regions) { return regions.lamport; }
  __device__ static uint32_t region(const WindowLayout& layout) { return layout.lamportRegion; }
  __device__ static size_t lineBytes(const WindowLayout& layout) { return lamportPayload(layout); }
  __device__ static bool absent(const Pack& part) { return static_cast<uint32_t>(part.low) == kAbsent; }
  // Another NaN, of one element of 32 bits or two of 16.
  __device__ static Pack sendable(Pack part) {
    if (absent(part)) part.low &= ~uint64_t{0x80000000};
    return part;
  }
};

// The same of blocks whose shares are whole tokens, which they normalise (cuda_norm.cuh).
struct TokenFormat : LamportFormat {
  static constexpr bool kNorms = true;
};

// The same of tokens that teams of threads keep in registers (whole_tokens.cuh).
struct WholeTokenFormat : TokenFormat {
  static constexpr bool kWhole = true;
};

// Not lines at all, but used instead when there is much to move: warp chunks of plain bytes, each with
// a flag beside it that is stored with release order. An epoch is one warp chunk (cuda_warp_chunks.cuh).
struct WarpChunkFormat : AnyFormat {
  static constexpr bool kWarpChunks = true;
  static constexpr size_t kLineBytes = 0;  // they have no lines

  __device__ static size_t lineBytes(const WindowLayout& layout) { return layout.warpChunkBytes; }
};

// Links in warp chunks. A block has kLinkWarps warps, and all of them use a link at the same time: warp w
// moves the warp chunks w, w + kLinkWarps, ... of the link, so that two warp chunks of its ring, or four
// between two ranks, are for that warp alone.
struct LinkChunkFormat : WarpChunkFormat {
  static constexpr bool kLinks = true;
  static constexpr int kLinkWarps = WindowLayout::kWarpChunkCredits / 2;
};

// A ring of warp chunks and their flags. Warp chunk `number` lies at `number` modulo `count`.
struct WarpChunkRing {
  std::byte* begin;
  uint32_t count;
  uint32_t bytes;  // that one holds at most

  __device__ uint32_t slot(uint64_t number) const { return static_cast<uint32_t>(number) & (count - 1); }
  __device__ std::byte* data(uint64_t number) const { return begin + size_t{slot(number)} * bytes; }
  __device__ uint64_t* flag(uint64_t number) const {
    return reinterpret_cast<uint64_t*>(begin + size_t{count} * bytes) + slot(number);
  }
  // Of a link whose layout has sizes.
  __device__ uint64_t* size(uint64_t number) const { return flag(number) + count; }
};

// One thread's part of a line: which units, and where it lies. Numbers of one channel, so 32 bits hold them.
template <typename Format>
struct LinePart {
  uint32_t unit = 0;    // the first of at most two
  uint32_t at = 0;      // bytes from the begin of the lines
  bool inside = false;  // the line is one of those that are there

  __device__ LinePart() = default;
  __device__ LinePart(uint32_t line, uint32_t lines, int lane) : inside(line < lines) {
    const uint32_t part = static_cast<uint32_t>(lane % Format::kLineThreads);
    unit = line * static_cast<uint32_t>(Format::kLineUnits) + 2 * part;
    at = line * static_cast<uint32_t>(Format::kLineBytes) + part * static_cast<uint32_t>(sizeof(Pack));
  }
};

// A thread's line of a token, of those that begin at line `first`.
template <typename Format>
__device__ LinePart<Format> tokenLine(uint32_t first, uint32_t pack, bool inside) {
  LinePart<Format> part;
  part.unit = pack * static_cast<uint32_t>(Format::kLineUnits);
  part.at = (first + pack) * static_cast<uint32_t>(Format::kLineBytes);
  part.inside = inside;
  return part;
}

// True for a thread whose part is one unit and the flag; the others hold two units.
template <typename Format>
__device__ bool holdsFlag(int lane) {
  return !Format::kLamport && lane % Format::kLineThreads == Format::kLineThreads - 1;
}

// Lines that `units` take, at least one.
template <typename Format>
__device__ uint32_t linesFor(size_t units) {
  return static_cast<uint32_t>(std::max<size_t>(1, (units + Format::kLineUnits - 1) / Format::kLineUnits));
}
template <typename Format>
__device__ uint32_t linesForBytes(size_t bytes) {
  return linesFor<Format>((bytes + kUnitBytes - 1) / kUnitBytes);
}

// The lines that this thread has a part in, kLines at a time. All threads of a warp have as many batches, so
// that they may speak to each other; some parts may lie behind the last line. A batch is named by the warp's
// first line.
template <typename Format, int kLines>
struct Batches {
  static constexpr int kWarp = 32;
  static constexpr uint32_t kPerWarp = kWarp / Format::kLineThreads;
  uint32_t lines;
  uint32_t first;
  uint32_t step;  // from one line of a batch to the next
  int lane;

  __device__ Batches(uint32_t allLines, int thread, int threads)
      : lines(allLines),
        first(static_cast<uint32_t>(thread / kWarp) * kPerWarp),
        step(static_cast<uint32_t>(threads / kWarp) * kPerWarp),
        lane(thread % kWarp) {}

  __device__ uint32_t after(uint32_t batch) const { return batch + kLines * step; }
  __device__ void find(LinePart<Format> (&parts)[kLines], uint32_t batch) const {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const uint32_t line =
          batch + static_cast<uint32_t>(lane / Format::kLineThreads) + static_cast<uint32_t>(i) * step;
      parts[i] = LinePart<Format>(line, lines, lane);
    }
  }
};

// visit(parts, lane)
template <typename Format, int kLines, typename Visit>
__device__ void forEachBatch(uint32_t lines, int thread, int threads, Visit visit) {
  const Batches<Format, kLines> all(lines, thread, threads);
  for (uint32_t batch = all.first; batch < lines; batch = all.after(batch)) {
    LinePart<Format> parts[kLines];
    all.find(parts, batch);
    visit(parts, all.lane);
  }
}

// True for a part of a line whose flag has come, known to all its threads. For whole warps.
template <typename Format>
__device__ bool lineReady(const Pack& part, uint64_t flag, int lane) {
  const bool mine = part.high == flag;
  if constexpr (Format::kLamport) {
    return !Format::absent(part);
  } else if constexpr (Format::kLL128) {
    constexpr unsigned kAll = 0xffffffff;
    return __shfl_sync(kAll, mine, lane | (Format::kLineThreads - 1)) != 0;
  } else {
    return mine;
  }
}

}  // namespace stretto::cuda
