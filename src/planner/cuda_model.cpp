#include "planner/cuda_model.hpp"

#include <algorithm>

namespace stretto::planner {
namespace {

// Microseconds, and bytes per microsecond.
struct CudaConstants {
  double launch = 1.2;     // a kernel in a graph, its first loads and its last stores
  double local = 2500e3;   // own memory
  double linkChunk = 0.4;  // bookkeeping of one more chunk of a link
};
constexpr CudaConstants kCuda;

// What a protocol costs: one way, what it puts on the wire for a byte, how fast that goes, and how many bytes
// make one more block worth while.
struct ProtocolConstants {
  double hop;
  double wireFactor;
  double wireRate;
  size_t bytesPerBlock;
};
constexpr ProtocolConstants constantsOf(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLines:
      return {0.85, 2.0, 340e3, 1024};
    case Protocol::kWide:
      return {1.05, 128.0 / 120, 340e3, 4096};
    case Protocol::kBare:
      return {0.80, 1.0, 330e3, 1024};
    case Protocol::kRuns:
      return {3.0, 1.0, 355e3, 16384};
    case Protocol::kChunks:
      break;
  }
  return {5.0, 1.0, 240e3, 16384};
}

constexpr double kTurnsOfWide = 280e3;

constexpr double kPerBlock = 24e3;  // bytes per microsecond that one block moves

}  // namespace

int preferredBlocks(const Descriptor& row, const Request& request, const Machine& machine) {
  constexpr size_t kFew = 16384;  // below, fewer blocks begin and end sooner
  if (row.algorithm == Algorithm::kLocal) return 1;
  const int most = mostBlocks(row, machine);
  if (machine.blocks != 0) return std::min(machine.blocks, most);
  const bool few = row.protocol == Protocol::kBare && request.bytes <= kFew;
  const size_t each = constantsOf(row.protocol).bytesPerBlock * (few ? 2 : 1);
  return static_cast<int>(
      std::clamp<size_t>((request.bytes + each - 1) / each, 1, static_cast<size_t>(most)));
}

// Blocks begin on whole cache lines, so a share may be one larger than its part.
size_t mostInBareLines(const Machine& machine) {
  constexpr size_t kGrain = 128;
  const size_t blocks =
      static_cast<size_t>(machine.blocks != 0 ? std::min(machine.blocks, machine.lanes) : machine.lanes);
  return machine.bareBytes < kGrain ? 0 : (machine.bareBytes - kGrain) * blocks;
}

double predictCuda(const Descriptor& row, const Request& request, const Machine& machine) {
  const bool pointToPoint = row.collective == Collective::kSend || row.collective == Collective::kReceive;
  const algorithms::Cost cost =
      row.cost(pointToPoint ? 2 : request.ranks, static_cast<double>(request.bytes));
  if (row.algorithm == Algorithm::kLocal) return kCuda.launch + cost.localBytes / kCuda.local;
  const double blocks = preferredBlocks(row, request, machine);
  const ProtocolConstants protocol = constantsOf(row.protocol);
  // Wide lines that take turns are unpacked and reduced more slowly than they arrive.
  const bool turnsOfWide = row.protocol == Protocol::kWide && reduces(row.collective) &&
                           request.bytes > machine.wideBytes * static_cast<size_t>(machine.lanes);
  const double most = turnsOfWide ? kTurnsOfWide : protocol.wireRate;
  const double wire = cost.wireBytes * protocol.wireFactor / std::min(most, kPerBlock * blocks);
  const double share = static_cast<double>(request.bytes) / blocks;
  const double turns =
      wayOf(row) == Way::kLinks ? std::max(1.0, share / static_cast<double>(machine.linkChunk)) : 1.0;
  return kCuda.launch + cost.hops * protocol.hop + wire + cost.localBytes / kCuda.local +
         (turns - 1) * kCuda.linkChunk;
}

}  // namespace stretto::planner
