#include "communicator/device/layout.hpp"

#include <algorithm>
#include <bit>

namespace stretto::communicator {
namespace {

// Stages of neighbouring chunks overlap, two at a time, so there are twice as many slots.
constexpr uint32_t kSlots = 4;

// Of the only peer. With more of them each gets less, but not less than the other number.
constexpr uint32_t kLineRegion = 4096, kLeastLines = 512;         // half of it payload
constexpr uint32_t kLL128Region = 144 * 128, kLeastLL128 = 1024;  // 17,280 bytes of payload
constexpr uint32_t kLamportRegion = 66 * 1024, kLeastLamport = 1024;
// Where lines go in turns among several ranks, a region must hold three lines of every thread, or fewer
// threads take part. Four times the usual memory does so for the 512 threads of a kernel for four ranks. With
// half of that 512 MB take 5 % longer, and with twice as much no less
// (docs/results/2026-11-28-gpu-4-h100). Three times the usual memory does so for the 256 threads of a kernel
// for eight ranks.
constexpr uint32_t regionInTurns(int ranks) {
  return kLamportRegion * (ranks == 4 ? 4 : 3);
}
constexpr uint32_t kSlotBytes = 1024;
// Warp chunks of collectives: with several peers many channels of short rings do more than few of long ones.
// Between two ranks they are longer, as each has a fence: 8 KB instead of 4 takes 2 to 6 % off 512 MB, and 16
// KB no more (docs/results/2026-11-25-gpu-2-h100-warp-chunks).
constexpr uint32_t kWarpChunkBytes = 8192, kLeastWarpChunkBytes = 4096;
constexpr uint32_t kWarpChunks = 32, kLeastWarpChunks = 8;
// Those of links are longer, up to what one warp should wait for. Of the 16 warps of a block that moves
// messages each has two between two ranks, so that it fills one while the peer reads the other; with one, 32
// to 512 MB take 3 to 5 % longer (docs/results/2026-11-30-gpu-2-h200). With several peers it has one. The 8
// warps of a block that runs an algorithm over links have twice as many.
constexpr uint32_t kLinkChunk = 16384, kLeastLinkChunk = 4096;
constexpr uint32_t kLeastLinkWarpChunks = WindowLayout::kWarpChunkCredits;
constexpr uint32_t kLinkWarpChunks = 2 * kLeastLinkWarpChunks;

// What channels may take together, where there are several peers; with one, all of them fit.
constexpr size_t kMostNear = size_t{28} << 20, kMostNearInTurns = size_t{64} << 20;
constexpr size_t kMostWarpChunkBytes = size_t{24} << 20;

uint32_t share(uint32_t whole, uint32_t parts, uint32_t least) {
  // Of what is counted in bytes; warp chunks come in powers of two, and so do parts.
  constexpr uint32_t kGrain = 128;
  const uint32_t each = whole / parts;
  return std::max(least, each > kGrain ? each / kGrain * kGrain : each);
}

// As many channels of `bytes` each as fit, at least one.
int32_t fitting(size_t most, size_t bytes, int32_t channels) {
  return static_cast<int32_t>(std::clamp<size_t>(most / bytes, 1, static_cast<size_t>(channels)));
}

}  // namespace

stretto::cuda::Shape deviceShape(int ranks, int wantedChannels) {
  stretto::cuda::Shape shape;
  WindowLayout& layout = shape.layout;
  layout.ranks = static_cast<uint32_t>(std::max(1, ranks - 1));
  layout.slots = kSlots;
  layout.linePhases = layout.ranks > 1 ? kPhases : 1;  // two shots between two ranks save nothing
  const uint32_t parts = std::bit_ceil(layout.ranks);
  layout.lineRegion = share(kLineRegion, parts, kLeastLines);
  layout.ll128Region = share(kLL128Region, parts * layout.linePhases, kLeastLL128);
  const bool inTurns = layout.ranks > 1 && algorithms::takesTurns(ranks);
  layout.lamportRegion =
      share(inTurns ? regionInTurns(ranks) : kLamportRegion, parts * layout.linePhases, kLeastLamport);
  layout.slotBytes = kSlotBytes;
  layout.linkChunk = share(kLinkChunk, parts, kLeastLinkChunk);
  layout.warpChunkBytes = share(kWarpChunkBytes, parts, kLeastWarpChunkBytes);
  layout.linkWarpChunks = share(kLinkWarpChunks, parts, kLeastLinkWarpChunks);
  layout.warpChunks = share(kWarpChunks, parts, kLeastWarpChunks);

  const int32_t wanted = ranks > 1 ? std::clamp(wantedChannels, 1, kMostChannels) : 1;
  shape.channels = fitting(inTurns ? kMostNearInTurns : kMostNear, shape.nearBytes(), wanted);
  shape.warpChunkChannels = layout.ranks == 1
                                ? shape.channels
                                : fitting(kMostWarpChunkBytes, layout.allWarpChunkBytes(), shape.channels);
  const size_t most = mostDeviceBytes(ranks);
  const size_t others = shape.warpChunksBegin(shape.warpChunkChannels) + shape.signalBytes();
  const size_t rest = most - std::min(most, others);
  shape.deepChannels = fitting(rest, shape.deepBytes(), std::min(shape.channels, kMostDeepChannels));
  return shape;
}

// A rank has a window for itself and one for each peer, all in pinned memory of the host.
stretto::cuda::Shape proxiedShape(int ranks, int wantedChannels) {
  constexpr size_t kMostPinned = size_t{256} << 20;
  constexpr size_t kMostChunk = 131072, kLeastChunk = 512;
  constexpr int kChannels = 4;
  stretto::cuda::Shape shape;
  WindowLayout& layout = shape.layout;
  layout.ranks = static_cast<uint32_t>(std::max(1, ranks - 1));
  layout.linePhases = 1;
  layout.lineRegion = 0;
  layout.linkWarpChunks = kLeastLinkWarpChunks;
  layout.linkSizes = 1;
  shape.channels = shape.warpChunkChannels = shape.deepChannels = std::clamp(wantedChannels, 1, kChannels);
  const size_t chunks = static_cast<size_t>(ranks) * layout.ranks * kLeastLinkWarpChunks * kChannels;
  layout.linkChunk =
      static_cast<uint32_t>(std::clamp(std::bit_floor(kMostPinned / chunks), kLeastChunk, kMostChunk));
  return shape;
}

int kernelsAtOnce(int sharing, int sharers) {
  constexpr int kUsual = 8;
  if (sharing == 0) return sharers;
  return sharing == 1 ? std::max(kUsual, 2 * sharers) : std::max(sharing, sharers);
}

int residentFor(int residentBlocks, int kernels) {
  return std::max(1, residentBlocks / std::max(1, kernels));
}

}  // namespace stretto::communicator
