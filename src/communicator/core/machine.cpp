#include "communicator/core/machine.hpp"

#include <algorithm>

#include "base/parameters.hpp"
#include "communicator/device/connect.hpp"
#include "communicator/device/layout.hpp"
#include "communicator/device/side.hpp"
#include "platform/cores.hpp"
#include "primitives/window.hpp"
#include "topology/probe.hpp"

namespace stretto::communicator {
namespace {

// Slots take 4 MiB of a window whatever the number of ranks: two slots, two phases, one part per rank.
constexpr size_t kSlotBudget = size_t{4} << 20;

}  // namespace

Result<uint32_t> slotBytesFor(int ranks) {
  size_t budget = kSlotBudget;
  if (parameters::kSlotBytes.isSet()) {
    const auto given = parameters::kSlotBytes.integer(65536, int64_t{1} << 30);
    if (!given.ok()) return given.status();
    budget = static_cast<size_t>(given.value());
  }
  const size_t each = budget / (WindowLayout::kSlots * kPhases * static_cast<size_t>(ranks));
  return static_cast<uint32_t>(std::max<size_t>(4096, each / 4096 * 4096));
}

Status addCacheSize(planner::Machine& machine) {
  const auto facts = topology::facts();
  if (facts.ok()) machine.cacheBytes = topology::lastLevelCacheBytes(*facts.value());
  return facts.status();
}

Status addRings(planner::Machine& machine) {
  const auto rings = parameters::kRings.integer(1, algorithms::kMaxRings);
  if (!rings.ok()) return rings.status();
  if (rings.value() == 3) {
    return fail(Code::kInvalidUsage, "STRETTO_RINGS=3: there can be 1, 2 or 4");
  }
  machine.rings = static_cast<uint8_t>(rings.value());
  const std::string gather = parameters::kRingGather.text();
  for (const auto directions : {planner::Directions::kOneWay, planner::Directions::kBothWays}) {
    if (gather != nameOf(directions)) continue;
    machine.directions = directions;
    return kOkStatus;
  }
  return fail(Code::kInvalidUsage, "STRETTO_RING_GATHER=%s: write one_way or both_ways", gather.c_str());
}

Result<planner::Machine> machineOfThisHost(int ranks) {
  planner::Machine machine;
  const auto slotBytes = slotBytesFor(ranks);
  const auto deterministic = parameters::kDeterministic.flag();
  if (!slotBytes.ok()) return slotBytes.status();
  if (!deterministic.ok()) return deterministic.status();
  machine.slotBytes = slotBytes.value();
  machine.linkChunk = kLinkChunk;
  machine.cores = platform::usableCores();
  machine.reach = true;
  machine.deterministic = deterministic.value();
  STRETTO_TRY(addCacheSize(machine));
  STRETTO_TRY(addRings(machine));
  const auto devices = usesDevices();
  if (!devices.ok()) return devices.status();
  if (!devices.value()) return machine;
  const auto channels = parameters::kChannels.integer(1, kMostChannels);
  if (!channels.ok()) return channels.status();
  const auto gpus = gpusOfThisHost(ranks);
  if (!gpus.ok()) return gpus.status();
  STRETTO_TRY(describe(deviceShape(ranks, static_cast<int>(channels.value())), gpus.value(), machine));
  machine.fewBlocks = channels.value() < kMostChannels;
  return machine;
}

}  // namespace stretto::communicator
