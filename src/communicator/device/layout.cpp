#include "communicator/device/layout.hpp"

#include <algorithm>
#include <bit>

namespace stretto::communicator {
namespace {

// Stages of neighbouring chunks overlap, two at a time, so there are twice as many slots.
constexpr uint32_t kSlots = 4;

// Of the only peer. With more of them each gets less, but not less than the other number.
constexpr uint32_t kLineRegion = 4096, kLeastLines = 512;       // half of it payload
constexpr uint32_t kWideRegion = 144 * 128, kLeastWide = 1024;  // 17,280 bytes of payload
constexpr uint32_t kBareRegion = 66 * 1024, kLeastBare = 1024;
constexpr uint32_t kSlotBytes = 1024;
// Runs of collectives: with several peers many lanes of short rings do more than few of long ones. Those of
// links are longer, up to what one warp should wait for: one for each warp of a message's block, two for each
// strand.
constexpr uint32_t kRunBytes = 4096;
constexpr uint32_t kRuns = 32, kLeastRuns = 8;
constexpr uint32_t kLinkChunk = 16384, kLeastLinkChunk = 4096;
constexpr uint32_t kLinkRuns = WindowLayout::kRunCredits;

// What lanes may take together, where there are several peers; with one, all of them fit.
constexpr size_t kMostNear = size_t{28} << 20;
constexpr size_t kMostRuns = size_t{24} << 20;

uint32_t share(uint32_t whole, uint32_t parts, uint32_t least) {
  // Of what is counted in bytes; runs come in powers of two, and so do parts.
  constexpr uint32_t kGrain = 128;
  const uint32_t each = whole / parts;
  return std::max(least, each > kGrain ? each / kGrain * kGrain : each);
}

// As many lanes of `bytes` each as fit, at least one.
int32_t fitting(size_t most, size_t bytes, int32_t lanes) {
  return static_cast<int32_t>(std::clamp<size_t>(most / bytes, 1, static_cast<size_t>(lanes)));
}

}  // namespace

stretto::cuda::Shape deviceShape(int ranks, int wantedLanes) {
  stretto::cuda::Shape shape;
  WindowLayout& layout = shape.layout;
  layout.ranks = static_cast<uint32_t>(std::max(1, ranks - 1));
  layout.slots = kSlots;
  layout.lineLegs = layout.ranks > 1 ? kLegs : 1;  // two shots between two ranks save nothing
  const uint32_t parts = std::bit_ceil(layout.ranks);
  layout.lineRegion = share(kLineRegion, parts, kLeastLines);
  layout.wideRegion = share(kWideRegion, parts * layout.lineLegs, kLeastWide);
  layout.bareRegion = share(kBareRegion, parts * layout.lineLegs, kLeastBare);
  layout.slotBytes = kSlotBytes;
  layout.linkChunk = share(kLinkChunk, parts, kLeastLinkChunk);
  layout.runBytes = kRunBytes;
  layout.linkRuns = kLinkRuns;
  layout.runs = share(kRuns, parts, kLeastRuns);

  const int32_t wanted = ranks > 1 ? std::clamp(wantedLanes, 1, kMostLanes) : 1;
  shape.lanes = fitting(kMostNear, shape.nearBytes(), wanted);
  shape.runLanes = fitting(kMostRuns, layout.allRunBytes(), shape.lanes);
  const size_t rest = kMostDeviceBytes - std::min(kMostDeviceBytes, shape.runBegin(shape.runLanes));
  shape.deepLanes = fitting(rest, shape.deepBytes(), std::min(shape.lanes, kMostDeepLanes));
  return shape;
}

int residentFor(int residentBlocks, int sharers) {
  return std::max(1, residentBlocks / std::max(1, sharers));
}

}  // namespace stretto::communicator
