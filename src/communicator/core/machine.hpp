// What the planner is told of this host, and how large this library makes its windows there. For
// communicator/ only.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "planner/plan.hpp"

namespace stretto::communicator {

inline constexpr uint32_t kLinkChunk = 65536;
// Of a window for so many ranks, as STRETTO_SLOT_BYTES has it.
Result<uint32_t> slotBytesFor(int ranks);

// What the planner would be told about `ranks` processes of this host, without making a communicator.
Result<planner::Machine> machineOfThisHost(int ranks);
// Two parts of that: what every rank finds for itself, and what its user has set.
Status addCacheSize(planner::Machine& machine);
Status addRings(planner::Machine& machine);

}  // namespace stretto::communicator
