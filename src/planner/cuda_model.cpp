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
constexpr size_t kBytesPerChunkBlock = 16384;

double wireFactor(Protocol protocol) {
  if (protocol == Protocol::kLines) return kCuda.shortLines;
  return protocol == Protocol::kWide ? kCuda.wideLines : 1.0;
}

}  // namespace

size_t mostInLines(const Descriptor& row, const Machine& machine, int blocks) {
  if (row.protocol == Protocol::kChunks) return 0;
  const size_t each = row.protocol == Protocol::kWide ? machine.wideBytes : machine.lineBytes;
  return each * static_cast<size_t>(blocks);
}

int preferredBlocks(const Descriptor& row, const Request& request, const Machine& machine) {
  if (row.algorithm == Algorithm::kLocal) return 1;
  if (machine.blocks != 0) return std::min(machine.blocks, machine.lanes);
  const size_t each = row.protocol == Protocol::kLines  ? std::min(kBytesPerLineBlock, machine.lineBytes)
                      : row.protocol == Protocol::kWide ? std::min(kBytesPerWideBlock, machine.wideBytes)
                                                        : kBytesPerChunkBlock;
  const size_t wanted = (request.bytes + each - 1) / std::max<size_t>(1, each);
  const size_t most = row.protocol == Protocol::kChunks ? 32 : static_cast<size_t>(machine.lanes);
  return static_cast<int>(std::clamp<size_t>(wanted, 1, std::min(most, static_cast<size_t>(machine.lanes))));
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
