// Which algorithms exist, what each needs, and what it costs on paper: the table of rows.hpp as plain values.
// The planner reads this and nothing else of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/names.hpp"
#include "base/types.hpp"

namespace stretto::algorithms {

enum class Algorithm : uint8_t {
  kLocal,     // one rank: a copy
  kOneShot,   // push all to all, reduce locally
  kTwoShot,   // push shards to owners, push results to all
  kDirect,    // read peers' memory in place: needs reach
  kRing,      // links along one or more rings
  kTree,      // links along a binary tree
  kChain,     // links along a chain, pipelined
  kFlat,      // links between the root and everybody
  kPush,      // push to every peer's slot
  kPairwise,  // links, one partner a round
  kStages,    // links, inside hosts and between them in turns
};
inline constexpr int kAlgorithms = 11;
static_assert(hasValues<Algorithm, kAlgorithms>());

enum class Protocol : uint8_t {
  kLL,          // payload and flag in one line: 8 of 16 bytes each between GPUs, a cache line between CPUs
  kSimple,      // chunks of data, each followed by a signal
  kLL128,       // the same with a flag of 8 in 128 bytes: less overhead, slower when there is little to move
  kLamport,     // no flag: a sentinel gives way to the data, which floats alone can spare a value for
  kWarpChunks,  // 4 KB (on links up to 16) that one warp writes and then flags
  kCopy,  // copy engines, from buffer to buffer: results must lie in a window that users have registered
  kPull,  // kernels read peers' buffers where they are, between barriers: these must lie in such windows
  kPullNosync,  // the same without the last barrier: users promise not to write what peers may still read
  kPullPush,    // kernels read peers' inputs where they are, and write the results where those belong
};
inline constexpr int kProtocols = 9;
static_assert(hasValues<Protocol, kProtocols>());

// Needs slots or links, which only the first channels of a device window have.
constexpr bool isDeep(Protocol protocol) {
  return protocol == Protocol::kSimple;
}

constexpr bool isPull(Protocol protocol) {
  return protocol == Protocol::kPull || protocol == Protocol::kPullNosync || protocol == Protocol::kPullPush;
}

// Whether it moves everything over links, which is all that ranks of several hosts have.
constexpr bool usesLinks(Algorithm algorithm) {
  return algorithm == Algorithm::kRing || algorithm == Algorithm::kTree || algorithm == Algorithm::kChain ||
         algorithm == Algorithm::kFlat || algorithm == Algorithm::kPairwise ||
         algorithm == Algorithm::kStages;
}

// Of kStages: what runs between the ranks of the same index on so many hosts when they reduce, and the most
// bytes of a rank that go through one stage before the next.
constexpr Algorithm alongRail(int hosts) {
  return hosts == 2 ? Algorithm::kPairwise : Algorithm::kRing;
}
inline constexpr size_t kStageWindow = size_t{4} << 20;

// Right only for callers who promise more than NCCL asks of them: nobody gets it without asking for it by
// name.
constexpr bool needsPromise(Protocol protocol) {
  return protocol == Protocol::kPullNosync;
}

// Ranks whose buffers a kernel that pulls can be told of.
inline constexpr int kMostPulled = 16;

// A plan says how large its chunks are. (A warp chunk is a chunk, or what of it goes to one owner; a copied
// shard is cut into chunks.)
constexpr bool takesChunk(Protocol protocol) {
  return protocol == Protocol::kSimple || protocol == Protocol::kWarpChunks || protocol == Protocol::kCopy;
}

// What ranks run on.
enum class Device : uint8_t { kHost, kCuda };
enum class Devices : uint8_t { kHost = 1, kCuda = 2, kBoth = kHost | kCuda };
constexpr bool includes(Devices devices, Device device) {
  return (static_cast<int>(devices) >> static_cast<int>(device) & 1) != 0;
}

inline constexpr int kMaxRings = 4;  // of a ring algorithm: 1, 2 or 4
// Of a ring's gather phase.
enum class Directions : uint8_t { kOneWay = 1, kBothWays = 2 };

const char* nameOf(Algorithm algorithm);
const char* nameOf(Directions directions);
const char* nameOf(Protocol protocol);

// What one operation costs one rank, counted: the planner multiplies by measured constants.
struct Cost {
  double hops = 0;  // one-way latencies in sequence
  double wireBytes =
      0;  // bytes that leave or reach the busiest rank, whichever is more; reading is the reader's
  double localBytes = 0;  // bytes read or written in own memory besides, busiest rank
};

struct Descriptor {
  Collective collective;
  Algorithm algorithm;
  Protocol protocol;
  Devices devices;
  bool rankOrder;                         // reduces in rank order: same bits as every other such algorithm
  bool normApart;                         // of an all-reduce with RMSNorm: the norm is a pass of its own
  bool needsPeerAccess;                   // every peer's ordinary memory must be reachable
  size_t mostBytes;                       // per-peer bytes it can carry; 0: any
  Cost (*cost)(int ranks, double bytes);  // bytes: as the collective counts them (Arguments::count)
};

// What an operation by this row costs, where rings gather in so many directions.
Cost costOf(const Descriptor& row, int ranks, double bytes, Directions directions);
// A ring that passes finished blocks on.
constexpr bool gathersAlongRing(const Descriptor& row) {
  return row.algorithm == Algorithm::kRing && row.collective != Collective::kReduceScatter;
}

// The rows that run on a device, and all rows; the order has no meaning.
std::span<const Descriptor> descriptors(Device device = Device::kHost);
std::span<const Descriptor> allDescriptors();

}  // namespace stretto::algorithms
