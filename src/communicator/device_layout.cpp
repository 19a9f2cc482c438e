#include "communicator/device_layout.hpp"

#include <algorithm>

namespace stretto::communicator {
namespace {

// Stages of neighbouring chunks overlap, two at a time, so there are twice as many slots.
constexpr uint32_t kSlots = 4;
constexpr uint32_t kLineRegion = 4096;       // 2 KB of payload from one peer
constexpr uint32_t kWideRegion = 144 * 128;  // 17,280 bytes of payload from one peer
constexpr uint32_t kBareRegion = 33 * 1024;  // from one peer
constexpr uint32_t kLinkRuns = 32;           // 4 KB each, from one peer
constexpr uint32_t kRuns = 32;               // the same for collectives
constexpr uint32_t kSlotBytes = 4096;        // from one peer
constexpr uint32_t kLinkChunk = 8192;
constexpr uint32_t kLeast = 1024;
constexpr uint32_t kLeastRuns = 16;  // two for each of eight warps

uint32_t halved(uint32_t bytes, uint32_t grain) {
  return std::max(grain, bytes / 2 / grain * grain);
}

}  // namespace

// With more peers each gets less: first of the deep lanes, then of the lines.
stretto::cuda::Shape deviceShape(int ranks, int wantedLanes) {
  stretto::cuda::Shape shape;
  shape.lanes = ranks > 1 ? std::clamp(wantedLanes, 1, kMostLanes) : 1;
  shape.deepLanes = std::min(shape.lanes, kMostDeepLanes);
  WindowLayout& layout = shape.layout;
  layout.ranks = static_cast<uint32_t>(std::max(1, ranks - 1));
  layout.slots = kSlots;
  layout.lineRegion = kLineRegion;
  layout.wideRegion = kWideRegion;
  layout.bareRegion = kBareRegion;
  layout.slotBytes = kSlotBytes;
  layout.linkChunk = kLinkChunk;
  layout.linkRuns = kLinkRuns;
  layout.runs = kRuns;
  const auto tooLarge = [&] { return shape.windowBytes() > kMostDeviceBytes; };
  while (tooLarge() && layout.slotBytes > kLeast) {
    layout.slotBytes = halved(layout.slotBytes, kLeast);
    layout.linkChunk = halved(layout.linkChunk, kLeast);
    layout.linkRuns = std::max(kLeastRuns, layout.linkRuns / 2);
    layout.runs = std::max(kLeastRuns, layout.runs / 2);
    layout.wideRegion = halved(layout.wideRegion, 16 * 128);
    layout.bareRegion = halved(layout.bareRegion, kLeast);
  }
  while (tooLarge() && shape.lanes > 1) {
    --shape.lanes;
    shape.deepLanes = std::min(shape.deepLanes, shape.lanes);
  }
  return shape;
}

int lanesFor(int wanted, int residentBlocks, int sharers) {
  return std::clamp(residentBlocks / std::max(1, sharers), 1, wanted);
}

}  // namespace stretto::communicator
