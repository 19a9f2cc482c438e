#include "communicator/device_layout.hpp"

#include <algorithm>

namespace stretto::communicator {
namespace {

constexpr uint32_t kLargestSlot = 65536;
constexpr uint32_t kLargestLinkChunk = 32768;
constexpr uint32_t kLeast = 1024;

bool fits(const WindowLayout& layout, int lanes) {
  return layout.bytes() <= kMostDeviceBytes / static_cast<size_t>(lanes);
}

}  // namespace

DeviceShape deviceShape(int ranks, int wantedLanes) {
  DeviceShape shape;
  shape.lanes = std::clamp(wantedLanes, 1, kMostLanes);
  shape.layout.ranks = static_cast<uint32_t>(ranks);
  shape.layout.slotBytes = kLargestSlot;
  shape.layout.linkChunk = kLargestLinkChunk;
  while (!fits(shape.layout, shape.lanes) && shape.layout.slotBytes > kLeast) {
    shape.layout.slotBytes = std::max(kLeast, shape.layout.slotBytes / 2);
    shape.layout.linkChunk = std::max(kLeast, shape.layout.linkChunk / 2);
  }
  while (!fits(shape.layout, shape.lanes) && shape.lanes > 1) --shape.lanes;
  return shape;
}

int lanesFor(int wanted, int residentBlocks, int sharers) {
  if (sharers <= 1) return wanted;
  return std::clamp(residentBlocks / sharers, 1, wanted);
}

}  // namespace stretto::communicator
