#include "planner/cuda_model.hpp"

#include <algorithm>
#include <cmath>

#include "algorithms/shares.hpp"
#include "algorithms/token_cut.hpp"

namespace stretto::planner {
namespace {

// Microseconds, and bytes per microsecond.
struct CudaConstants {
  double launch = 1.2;    // a kernel in a graph, its first loads and its last stores
  double local = 2500e3;  // own memory
  // Of an all-reduce with RMSNorm: a token that has come is added and normalised by one block in so long, 8
  // KB of it in that much more, and leaves at that rate; a kernel that does nothing else begins after the one
  // before has ended. A block that does not keep a token in registers takes longer, and does nothing
  // meanwhile (docs/results/2026-11-25-fused-gpu: 3.0 to 3.5 us of tokens of 8 and 16 KB).
  double token = 0.7;
  double tokenRate = 40e3;
  double largeToken = 3.2;
  double pass = 1.0;
};
constexpr CudaConstants kCuda;

// Copy engines (two H200s): ranks meet in a kernel of one block, and a copy costs that much beside its bytes.
// Reductions go beside copies; by more blocks than these they are in their way (512 MB: 1467 us by 16 blocks,
// 1665 by 64, 2409 by 128).
struct CopyConstants {
  double meeting = 3.0;
  double copy = 3.0;
  double rate = 390e3;
  double rateBesideKernels = 375e3;
  // Of chunks below 64 MB, that wait for each other's ends (2 GPUs: 479 us for 128 MB, 790 for 256 MB, 1455
  // for 512 MB; 4 GPUs: 1451 for 256 MB, 2653 for 512 MB, 4536 for 1 GB).
  size_t largeChunk = size_t{64} << 20;
  double rateOfSmallChunks = 300e3;
  double reducing = 1360e3;
  int blocks = 16;
  // Of a shard that is reduced: as few as hide the reduction of the last one (2 GPUs, 256 MB: 744 us by 2,
  // 766 by 4; 512 MB: 1429 and 1466). Of more GPUs only 4 were measured.
  constexpr size_t chunks(int ranks) const { return ranks == 2 ? 2 : 4; }
};
constexpr CopyConstants kCopies;

// What a protocol costs: one way, what it puts on the wire for a byte, how fast that goes, and how many bytes
// make one more block worth while.
struct ProtocolConstants {
  double hop;
  double wireFactor;
  double wireRate;
  size_t bytesPerBlock;
  double perBlock = 24e3;  // bytes per microsecond that one block moves
};
constexpr double kLinesPerBlock = 5e3;
ProtocolConstants constantsOf(const Descriptor& row) {
  const bool isMessage = row.collective == Collective::kSend || row.collective == Collective::kReceive;
  if (isMessage) return {5.0, 1.0, 345e3, 16384};
  if (wayOf(row) == Way::kLinks) return {6.5, 1.0, 325e3, 65536, 10.5e3};
  switch (row.protocol) {
    case Protocol::kLL:
      return {0.85, 2.0, 340e3, 1024, kLinesPerBlock};
    case Protocol::kLL128:
      return {1.05, 128.0 / 120, 340e3, 4096, kLinesPerBlock};
    case Protocol::kLamport:
      return {0.80, 1.0, 330e3, 1024, 10e3};
    case Protocol::kWarpChunks:
      return {3.0, 1.0, 355e3, 16384, 9e3};
    case Protocol::kCopy:
      return {kCopies.meeting, 1.0, kCopies.rate, 65536};
    case Protocol::kPull:
    case Protocol::kPullNosync:
      return {2.7, 1.0, 333e3, 65536, 25e3};
    case Protocol::kPullPush:
      return {2.7, 1.0, 329e3, 65536, 36e3};
    case Protocol::kSimple:
      break;  // along links, as above
  }
  return {};
}

// Between hosts, where a proxy of each rank moves what is on a link: over TCP in one thread.
constexpr double kProxy = 24;  // microseconds, beside the message itself
constexpr double kProxiedRate = 4e3;
double proxiedHop(const Machine& machine) {
  return kProxy + machine.hostLinks.hop;
}
double proxiedRate(const Machine& machine) {
  return machine.hostLinks.measured ? std::min(kProxiedRate, machine.hostLinks.rate) : kProxiedRate;
}

constexpr size_t kMostPass = size_t{1} << 20;
constexpr double kStepsOfLL128 = 280e3;
constexpr double kStepsPassedOn = 150e3;         // read and sent on by the same threads
constexpr double kTwoShotsInWarpChunks = 333e3;  // and other sums of several ranks
constexpr double kTwoShotsPulled = 325e3;
constexpr double kLamportAlternates = 356e3;
constexpr double kLamportAmongSeveral = 342e3;  // four H100s
constexpr double kAmongSeveral = 205e3;         // links, whose warp chunks are short then (four H200s)

size_t shardsOf(const Descriptor& row, const Request& request) {
  return algorithms::shardsOf(row.algorithm, request.ranks);
}

using algorithms::kShareGrain;

// Where it is not known, that of 4096 elements of 16 bits.
size_t tokenBytesOf(const Request& request) {
  constexpr size_t kUsual = 8192;
  return request.tokenBytes != 0 ? request.tokenBytes : std::clamp<size_t>(request.bytes, 1, kUsual);
}
algorithms::TokenCut cutOf(const Descriptor& row, const Request& request, const Machine& machine,
                           size_t chunkBytes = SIZE_MAX) {
  const size_t tokenBytes = tokenBytesOf(request);
  return {.algorithm = row.algorithm,
          .ranks = request.ranks,
          .tokens = (request.bytes + tokenBytes - 1) / tokenBytes,
          .tokenBytes = tokenBytes,
          .payload = machine.lamportBytes,
          .chunkBytes = chunkBytes};
}
int mostPlanned(const Descriptor& row, const Machine& machine) {
  const int most =
      std::min(mostBlocks(row, machine), wayOf(row) == Way::kCopies ? kCopies.blocks : kMostBlocks);
  return machine.blocks != 0 ? std::min(machine.blocks, most) : most;
}
// Blocks that it has unless the norm is apart.
int blocksOfTokens(const Descriptor& row, const Request& request, const Machine& machine) {
  const int most = mostPlanned(row, machine);
  if (machine.blocks != 0) return most;
  return static_cast<int>(cutOf(row, request, machine).blocks(static_cast<size_t>(most)));
}
// Whether it is a norm of its own with these. Then an all-reduce is cut, for as many blocks or fewer, which
// have as many tokens each or more: with those it is apart as well.
bool normIsApart(const Descriptor& row, const Request& request, const Machine& machine) {
  return row.collective == Collective::kAllReduceAddRmsNorm &&
         normFormOf(row, request, machine, {blocksOfTokens(row, request, machine)}) == NormForm::kApart;
}

bool isFusedNorm(const Descriptor& row, const Request& request, const Machine& machine) {
  return row.collective == Collective::kAllReduceAddRmsNorm && !normIsApart(row, request, machine);
}

// The second phase of a two-shot begins when all shards have come and been reduced (four H200s), unless lines
// go in turns; where it is pulled there is a barrier of its own.
double hopOf(const Descriptor& row, const Request& request, const Machine& machine) {
  const bool inTurns = row.protocol == Protocol::kLamport && algorithms::takesTurns(request.ranks) &&
                       !isFusedNorm(row, request, machine);
  const bool follows = row.algorithm == Algorithm::kTwoShot && wayOf(row) != Way::kPulls && !inTurns;
  const double second = !follows ? 0 : row.protocol == Protocol::kWarpChunks ? 3.5 : 1.0;
  return constantsOf(row).hop + second;
}

// Lines that are put and read in turns.
bool takesSteps(const Descriptor& row, const Request& request, const Machine& machine) {
  const bool sums = normIsApart(row, request, machine);
  return row.protocol == Protocol::kLamport &&
         algorithms::hasLamportSteps(sums ? Collective::kAllReduce : row.collective, row.algorithm,
                                     request.ranks, machine.lamportBytes);
}

// Bytes of an operation that one block takes without a second round through its lines.
size_t inOnePass(const Descriptor& row, const Request& request, const Machine& machine) {
  const auto payload = [&]() -> size_t {
    switch (row.protocol) {
      case Protocol::kLL:
        return machine.lineBytes;
      case Protocol::kLL128:
        return machine.ll128Bytes;
      case Protocol::kLamport:
        return algorithms::mostInLamportShard(machine.lamportBytes);
      default:
        return kMostPass;
    }
  };
  return std::max(payload() / kShareGrain, size_t{1}) * kShareGrain * shardsOf(row, request);
}

double rateOf(const Descriptor& row, const Request& request, const Machine& machine) {
  // LL128 lines that take turns are unpacked and reduced more slowly than they arrive.
  const size_t ll128InOneStep =
      machine.ll128Bytes * static_cast<size_t>(machine.channels) * shardsOf(row, request);
  const bool inSeveralSteps = row.protocol == Protocol::kLL128 && request.bytes > ll128InOneStep;
  const bool twoShot = row.algorithm == Algorithm::kTwoShot;
  if (takesSteps(row, request, machine)) {
    return request.ranks == 2 ? kLamportAlternates : kLamportAmongSeveral;
  }
  if (inSeveralSteps && reduces(row.collective)) return kStepsOfLL128;
  if (inSeveralSteps && twoShot) return kStepsPassedOn;
  const bool readsResults = wayOf(row) == Way::kPulls && row.protocol != Protocol::kPullPush;
  if (twoShot && readsResults) return kTwoShotsPulled;
  if (wayOf(row) == Way::kLinks && request.ranks > 2) return kAmongSeveral;
  const bool sumsAmongSeveral = reduces(row.collective) && request.ranks > 2;
  const bool isSlower = row.protocol == Protocol::kWarpChunks && (twoShot || sumsAmongSeveral);
  return isSlower ? kTwoShotsInWarpChunks : constantsOf(row).wireRate;
}

// Copies of one rank that follow each other, for one chunk of what it sends.
double copiesOf(const Descriptor& row, int ranks) {
  return (reduces(row.collective) ? 2.0 : 1.0) * (ranks - 1);
}

// While a chunk is reduced others are copied, results of the one before the last among them.
double predictCopies(const Descriptor& row, const Request& request) {
  const algorithms::Cost cost = row.cost(request.ranks, static_cast<double>(request.bytes));
  const double meetings = cost.hops * kCopies.meeting;
  const double copies = copiesOf(row, request.ranks) * kCopies.copy;
  if (!reduces(row.collective)) return meetings + copies + cost.wireBytes / kCopies.rate;
  const double chunks = static_cast<double>(kCopies.chunks(request.ranks));
  const bool large = preferredCopy(row, request) >= kCopies.largeChunk;
  const double wire = cost.wireBytes / (large ? kCopies.rateBesideKernels : kCopies.rateOfSmallChunks);
  const double reduction = cost.localBytes / chunks / kCopies.reducing;
  const double hidden = wire / 2 / chunks;
  return 2 * meetings + chunks * copies + wire + std::max(0.0, reduction - hidden);
}

// What the norm adds. Fused, a block's tokens follow one another, all but the last of them while others are
// still under way, if there are registers and lines for all; else when they have come, and those that its
// lines do not hold at once after the others. Apart, all tokens are read and written again by a kernel of its
// own.
double predictNorm(const Descriptor& row, const Request& request, const Machine& machine, double moving,
                   Cut cut) {
  const double each = kCuda.token + static_cast<double>(tokenBytesOf(request)) / kCuda.tokenRate;
  const NormForm form = normFormOf(row, request, machine, cut);
  if (form == NormForm::kApart)
    return kCuda.pass + each + 4 * static_cast<double>(request.bytes) / kCuda.local;
  const algorithms::TokenCut tokens = cutOf(row, request, machine, cut.chunkBytes);
  const auto blocks = static_cast<size_t>(cut.blocks);
  const auto ofBlock = static_cast<double>(tokens.ofBlock(blocks));
  const auto rounds = static_cast<double>(tokens.rounds(blocks));
  if (form == NormForm::kInLines)
    return ofBlock * kCuda.largeToken + (rounds - 1) * hopOf(row, request, machine);
  return each + std::max(0.0, (ofBlock - 1) * each - moving);
}

}  // namespace

NormForm normFormOf(const Descriptor& row, const Request& request, const Machine& machine, Cut cut) {
  if (row.normApart) return NormForm::kApart;
  if (row.protocol != Protocol::kLamport) return NormForm::kInLines;  // one rank: it has no lines
  return cutOf(row, request, machine, cut.chunkBytes).form(static_cast<size_t>(cut.blocks));
}

int preferredBlocks(const Descriptor& row, const Request& request, const Machine& machine) {
  constexpr size_t kFew = 16384;
  constexpr size_t kBlocksInTurns = 64, kMostInTurns = size_t{16} << 10;
  if (row.algorithm == Algorithm::kLocal) return 1;
  const int most = mostPlanned(row, machine);
  if (machine.blocks != 0) return most;
  if (isFusedNorm(row, request, machine)) return blocksOfTokens(row, request, machine);
  // Where lines go in turns, half of all blocks are enough until each of their threads has a line. For small
  // operations it depends on the ranks. Between two, few blocks of 2 KB or more are the fastest, as fewer
  // begin and end sooner. Among several, many blocks of 128 bytes or more are, as each thread stores to
  // several peers.
  const bool inTurns = row.protocol == Protocol::kLamport && algorithms::takesTurns(request.ranks);
  const bool fewer = row.protocol == Protocol::kLamport && (inTurns || request.bytes <= kFew);
  size_t each = constantsOf(row).bytesPerBlock * (fewer ? 2 : 1);
  if (inTurns && request.ranks != 2) each = kShareGrain;
  if (inTurns) each = std::max(each, std::min(request.bytes / kBlocksInTurns, kMostInTurns));
  if (!takesSteps(row, request, machine)) each = std::min(each, inOnePass(row, request, machine));
  each = (each + kShareGrain - 1) / kShareGrain * kShareGrain;
  return static_cast<int>(
      std::clamp<size_t>((request.bytes + each - 1) / each, 1, static_cast<size_t>(most)));
}

size_t mostInLamportLines(const Descriptor& row, const Request& request, const Machine& machine) {
  const size_t blocks = static_cast<size_t>(machine.blocks != 0 ? std::min(machine.blocks, machine.channels)
                                                                : machine.channels);
  return algorithms::mostInLamportLines(machine.lamportBytes, blocks, row.collective, row.algorithm,
                                        request.ranks);
}

size_t mostInWarpChunks(const Descriptor& row, const Request& request, const Machine& machine) {
  return machine.warpChunkBytes * shardsOf(row, request);
}

// So that each warp has several chunks, and its stages overlap.
size_t preferredInWarpChunks(const Descriptor& row, const Request& request, const Machine& machine) {
  constexpr size_t kLeastWarpChunk = 4096;
  constexpr size_t kChunksOfBlock = 16;
  const size_t share = request.bytes / static_cast<size_t>(preferredBlocks(row, request, machine));
  const size_t most = mostInWarpChunks(row, request, machine);
  return std::clamp(share / kChunksOfBlock / kShareGrain * kShareGrain,
                    std::min(most, kLeastWarpChunk * shardsOf(row, request)), most);
}

size_t preferredCopy(const Descriptor& row, const Request& request) {
  if (!reduces(row.collective)) return request.bytes;
  const size_t shard = request.bytes / static_cast<size_t>(request.ranks);
  const size_t cut = kCopies.chunks(request.ranks) * kShareGrain;
  const size_t lines = (shard + cut - 1) / cut;
  return std::max<size_t>(1, lines) * kShareGrain;
}

double predictCuda(const Descriptor& row, const Request& request, const Machine& machine,
                   uint32_t chunkBytes) {
  if (wayOf(row) == Way::kCopies) return predictCopies(row, request);
  const bool pointToPoint = row.collective == Collective::kSend || row.collective == Collective::kReceive;
  const algorithms::Cost cost = algorithms::costOf(row, pointToPoint ? 2 : request.ranks,
                                                   static_cast<double>(request.bytes), machine.directions);
  if (row.algorithm == Algorithm::kLocal) return kCuda.launch + cost.localBytes / kCuda.local;
  const int blocks = preferredBlocks(row, request, machine);
  const bool norms = row.collective == Collective::kAllReduceAddRmsNorm;
  const bool isFused = isFusedNorm(row, request, machine);
  const double perBlock = isFused ? kCuda.tokenRate : constantsOf(row).perBlock;
  const bool isProxied = machine.hosts > 1;
  const double rate =
      isProxied ? proxiedRate(machine) : std::min(rateOf(row, request, machine), perBlock * blocks);
  const double hop = isProxied ? proxiedHop(machine) : hopOf(row, request, machine);
  const double wire = cost.wireBytes * constantsOf(row).wireFactor / rate;
  // Lines are packed before they leave and unpacked when they have come; the rest overlaps.
  const double local = cost.localBytes / kCuda.local;
  const bool overlaps = row.protocol == Protocol::kWarpChunks || wayOf(row) != Way::kLines ||
                        takesSteps(row, request, machine) || isFused;
  const double moving = overlaps ? std::max(wire, local) : wire + local;
  return kCuda.launch + cost.hops * hop + moving +
         (norms ? predictNorm(row, request, machine, moving, {blocks, chunkBytes}) : 0);
}

}  // namespace stretto::planner
