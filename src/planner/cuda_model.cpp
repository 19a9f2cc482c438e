#include "planner/cuda_model.hpp"

#include <algorithm>

namespace stretto::planner {
namespace {

// Microseconds, and bytes per microsecond.
struct CudaConstants {
  double launch = 0.9;      // a kernel in a graph, its first loads and its last stores
  double lineHop = 0.8;     // one way, readiness in the lines
  double signalHop = 1.6;   // one way, data, fence and signal
  double step = 0.4;        // bookkeeping of one more chunk of a link
  double wire = 360e3;      // into peers, all blocks together
  double perBlock = 24e3;   // into peers, one block
  double local = 2500e3;    // own memory
  double shortLines = 2.0;  // bytes on the wire for one of payload,
  double wideLines = 128.0 / 120;
};
constexpr CudaConstants kCuda;

constexpr size_t kBytesPerLineBlock = 4096;  // one short line for each of 512 threads
constexpr size_t kBytesPerWideBlock = 7680;  // one wide line for each eighth of 512 threads
constexpr size_t kBytesPerBareBlock = 2048;
constexpr size_t kBytesPerChunkBlock = 16384;

double wireFactor(Protocol protocol) {
  if (protocol == Protocol::kLines) return kCuda.shortLines;
  return protocol == Protocol::kWide ? kCuda.wideLines : 1.0;
}

}  // namespace

int preferredBlocks(const Descriptor& row, const Request& request, const Machine& machine) {
  if (row.algorithm == Algorithm::kLocal) return 1;
  const int most = row.protocol == Protocol::kChunks ? machine.deepLanes : machine.lanes;
  if (machine.blocks != 0) return std::min(machine.blocks, most);
  const size_t each = row.protocol == Protocol::kLines  ? kBytesPerLineBlock
                      : row.protocol == Protocol::kWide ? kBytesPerWideBlock
                      : row.protocol == Protocol::kBare ? kBytesPerBareBlock
                                                        : kBytesPerChunkBlock;
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
  const bool lines = row.protocol != Protocol::kChunks;
  const bool links = wayOf(row) == Way::kLinks;
  const double rate = std::min(kCuda.wire, kCuda.perBlock * blocks);
  const double wire = cost.wireBytes * wireFactor(row.protocol) / rate;
  const double hop = lines ? kCuda.lineHop : kCuda.signalHop;
  const double turns = links ? std::max(1.0, static_cast<double>(request.bytes) / blocks /
                                                 static_cast<double>(machine.linkChunk))
                             : 1.0;
  return kCuda.launch + cost.hops * hop + wire + cost.localBytes / kCuda.local + (turns - 1) * kCuda.step;
}

}  // namespace stretto::planner
