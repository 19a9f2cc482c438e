// The planner's model of the host backend: what an algorithm needs, how its chunks should be cut, and how
// long it takes. Pure functions of plain values; used by the planner only. The constants were fitted to
// measurements (docs/decisions/0003-planner.md); a measured table overrides what they predict.
#pragma once

#include <vector>

#include "planner/plan.hpp"

namespace stretto::planner {

using algorithms::Descriptor;

// How an algorithm's bytes travel.
enum class Way : uint8_t { kLocal, kLines, kSlots, kLinks, kPeerAccess, kCopies, kPulls };
Way wayOf(const Descriptor& row);
// Only between buffers that users have registered.
constexpr bool needsWindow(const Descriptor& row) {
  return row.protocol == Protocol::kCopy || algorithms::isPull(row.protocol);
}

// Why an algorithm cannot serve a request.
enum class Obstacle : uint8_t {
  kNone,
  kOneRank,
  kTwoRanks,
  kManyRanks,
  kHosts,
  kPlaces,
  kOrder,
  kPeerAccess,
  kBytes,
  kSlots,
  kLinks,
  kType,
  kWindow,
  kShards,
  kInputs,
  kManyPeers,
  kToken
};
Obstacle obstacleTo(const Descriptor& row, const Request& request, const Machine& machine);
// What goes after "because", for what obstacleTo() said of the same; for kNone the empty text.
std::string reasonOf(const Descriptor& row, Obstacle obstacle, const Request& request,
                     const Machine& machine);

// Most blocks that can take part: 1 on the host.
constexpr int mostBlocks(const Descriptor& row, const Machine& machine) {
  if (!machine.gpu) return 1;
  if (row.protocol == Protocol::kWarpChunks) return machine.warpChunkChannels;
  if (row.protocol == Protocol::kCopy && !reduces(row.collective)) return 1;
  return algorithms::isDeep(row.protocol) ? machine.deepChannels : machine.channels;
}

// Most bytes that one chunk of this algorithm may have here, a multiple of 64; 0 if it has no chunks. Only
// for rows without an obstacle.
uint32_t mostChunk(const Descriptor& row, const Request& request, const Machine& machine);
// The chunk that the model prefers, at most mostChunk().
uint32_t preferredChunk(const Descriptor& row, const Request& request, const Machine& machine);

// True when a rank's result is too large to be worth keeping in its caches.
bool streams(const Request& request, const Machine& machine);

// What a plan by stages consists of, in order; only where obstacleTo() finds none.
std::vector<Stage> stagesOf(const Request& request, const Machine& machine);

// Microseconds from the first rank's call to the last rank's return. Looks at nothing in which ranks may
// differ: not at cacheBytes, which depends on the cores that a rank may use.
double predict(const Descriptor& row, const Request& request, const Machine& machine, uint32_t chunkBytes);

}  // namespace stretto::planner
