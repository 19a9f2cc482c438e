#include "planner/model.hpp"

#include <algorithm>
#include <vector>

#include "planner/cuda_model.hpp"
#include "primitives/cuda/reducer_kind.hpp"
#include "primitives/window.hpp"

namespace stretto::planner {
namespace {

constexpr uint32_t kChunkGrain = 64;            // chunks start on cache lines
constexpr uint32_t kMostAny = 1u << 30;         // where no region bounds a chunk
constexpr size_t kSlotPiece = size_t{1} << 20;  // a rank's part of a chunk in slots: 1 MB measured best
constexpr size_t kLinkPieces = 4;               // a message over a link is cut into this many,
constexpr size_t kLinkGrain = 4096;             // rounded up to pages,
constexpr size_t kLeastLinkPiece = 8192;        // and not smaller than this
// Results of so many bytes are large: they do not stay in the caches that two cores have to themselves.
constexpr size_t kStreamBytes = size_t{3} << 20;
// Stores past the last-level cache pay once the buffers of all ranks fill half of it: between two ranks with
// 32 MB slower up to 4 MB each way, faster from 8 MB (docs/results/2026-11-25-small-operations).
constexpr double kCacheShare = 0.5;
// A larger one serves many cores, and less of it is this rank's than the kernel says: with 300 MB they pay
// from 4 MB on (docs/results/2026-11-28-large-caches).
constexpr size_t kMostOwnCache = size_t{64} << 20;

// Microseconds, and bytes per microsecond (1,000 of them are 1 GB/s). Fitted on a 2-core machine with a
// shared last-level cache.
struct HostConstants {
  double fixed = 0.15;        // a call that meets nobody
  double hop = 0.12;          // one cache line from core to core
  double peer = 0.03;         // each further peer to signal and to look at
  double switchCost = 1.5;    // a yield to another rank on the same core
  double kernelCall = 1.0;    // a copy made by the kernel: once per peer, beside its bytes
  double push = 14e3;         // into a peer's slot
  double link = 10e3;         // into a peer's link, chunk by chunk
  double lines = 6e3;         // as lines with flags
  double read = 50e3;         // a peer's memory in place
  double kernelCopy = 12e3;   // a peer's memory by the kernel
  double local = 50e3;        // own memory, read or written
  double norm = 14e3;         // own tokens, added to and normalised in a cache
  double pass = 0.25;         // to begin a pass of its own for that
  double largeOneShot = 1.3;  // times the bytes' share when results are large,
  double largeOther = 1.1;    // because nothing stays in the caches
};
constexpr HostConstants kHost;

bool isPointToPoint(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kReceive;
}

// Bytes of what one rank ends up with, the root's if there is one.
double resultBytes(const Request& request) {
  return static_cast<double>(request.bytes) *
         static_cast<double>(blocksReceived(request.collective, request.ranks));
}

// The same of what it begins with.
double inputBytes(const Request& request) {
  return static_cast<double>(request.bytes) *
         static_cast<double>(blocksSent(request.collective, request.ranks));
}

bool isLarge(const Request& request) {
  return resultBytes(request) >= static_cast<double>(kStreamBytes);
}

// A chunk of an all-reduce that is cut into one shard per rank.
bool isSharded(const Descriptor& row) {
  const bool reducesAll =
      row.collective == Collective::kAllReduce || row.collective == Collective::kAllReduceAddRmsNorm;
  return reducesAll && (row.algorithm == Algorithm::kTwoShot || row.algorithm == Algorithm::kDirect);
}

uint32_t toGrain(size_t bytes) {
  const size_t rounded = std::min<size_t>(bytes, kMostAny) / kChunkGrain * kChunkGrain;
  return static_cast<uint32_t>(std::max<size_t>(rounded, kChunkGrain));
}

// Bytes that pass one link in one round of the algorithm.
size_t linkMessage(const Descriptor& row, const Request& request) {
  const bool shards = row.collective == Collective::kAllReduce && row.algorithm == Algorithm::kRing;
  return shards ? request.bytes / static_cast<size_t>(request.ranks) : request.bytes;
}

// How many times the algorithm goes through its steps.
double turnsOf(const Descriptor& row, const Request& request, uint32_t chunkBytes) {
  if (wayOf(row) == Way::kLocal || wayOf(row) == Way::kLines || chunkBytes == 0) return 1;
  const size_t bytes = wayOf(row) == Way::kLinks ? linkMessage(row, request) : request.bytes;
  return static_cast<double>(std::max<size_t>(1, (bytes + chunkBytes - 1) / chunkBytes));
}

// One step of waiting for others: a line with the signal and one with the data behind it, unless they are
// the same, and a turn of all ranks on a core when there are not enough cores.
double turnTime(double crowding) {
  return crowding > 1 ? kHost.switchCost * crowding : 0.0;
}
double hopTime(Way way, int partners, double crowding) {
  const double lines = way == Way::kLines ? 1 : 2;
  return lines * kHost.hop + kHost.peer * std::max(0, partners - 1) + turnTime(crowding);
}

double wireRate(Way way, const Machine& machine) {
  switch (way) {
    case Way::kLines:
      return kHost.lines;
    case Way::kLinks:
      return kHost.link;
    case Way::kPeerAccess:
      return machine.sameProcess ? kHost.read : kHost.kernelCopy;
    default:
      return kHost.push;
  }
}

// Most bytes that its lines carry. On a GPU lines take turns, as chunks do; Lamport ones not always.
size_t mostBytesOf(const Descriptor& row, const Request& request, const Machine& machine) {
  if (row.protocol == Protocol::kLamport) return mostInLamportLines(row, request, machine);
  return machine.gpu || row.mostBytes == 0 ? SIZE_MAX : row.mostBytes;
}

// Bytes of the largest token, of which whole ones are exchanged where the norm is part of that.
size_t mostToken(const Descriptor& row, const Machine& machine) {
  constexpr size_t kLine = 16;
  if (row.normApart || row.collective != Collective::kAllReduceAddRmsNorm || wayOf(row) == Way::kLocal)
    return SIZE_MAX;
  return machine.gpu ? machine.lamportBytes / kLine * kLine : machine.slotBytes;
}

// Two shots read results as well.
bool mayPull(const Descriptor& row, const Request& request) {
  return row.algorithm == Algorithm::kTwoShot ? request.pullsTwice : request.pullsOnce;
}

// What it reduces together, or what its kernels read from.
int mostPeersOf(const Descriptor& row) {
  const bool sumsAll = row.algorithm == Algorithm::kPairwise || row.algorithm == Algorithm::kFlat;
  if (wayOf(row) == Way::kPulls) return algorithms::kMostPulled;
  return reduces(row.collective) && sumsAll ? kMaxRanks : kMostRanks;
}

// Shards that are copied lie in each other's places, so they are equally large.
bool cutsEvenly(const Descriptor& row, const Request& request) {
  constexpr size_t kShardGrain = 16;
  return !reduces(row.collective) || request.bytes % (kShardGrain * static_cast<size_t>(request.ranks)) == 0;
}

}  // namespace

Way wayOf(const Descriptor& row) {
  if (row.algorithm == Algorithm::kLocal) return Way::kLocal;
  if (row.protocol == Protocol::kCopy) return Way::kCopies;
  if (algorithms::isPull(row.protocol)) return Way::kPulls;
  if (row.protocol != Protocol::kSimple) return Way::kLines;
  if (row.needsPeerAccess) return Way::kPeerAccess;
  return algorithms::usesLinks(row.algorithm) ? Way::kLinks : Way::kSlots;
}

Obstacle obstacleTo(const Descriptor& row, const Request& request, const Machine& machine) {
  const Way way = wayOf(row);
  if (way == Way::kLocal) return request.ranks == 1 ? Obstacle::kNone : Obstacle::kManyRanks;
  if (request.ranks == 1 && !isPointToPoint(row.collective)) return Obstacle::kOneRank;
  if (machine.hosts > 1 && way != Way::kLinks) return Obstacle::kHosts;
  if (row.algorithm == Algorithm::kStages && (machine.hosts < 2 || machine.perHost < 2))
    return Obstacle::kPlaces;
  if (machine.deterministic && !row.rankOrder) return Obstacle::kOrder;
  if (row.needsPeerAccess && !machine.reach) return Obstacle::kPeerAccess;
  if (machine.gpu && request.ranks == 2 && row.algorithm == Algorithm::kTwoShot && way == Way::kLines) {
    return Obstacle::kTwoRanks;
  }
  const bool isForFloats =
      row.protocol == Protocol::kLamport || row.collective == Collective::kAllReduceAddRmsNorm;
  if (machine.gpu && isForFloats && !cuda::isFixed(request.type, request.op)) return Obstacle::kType;
  if (request.bytes > mostBytesOf(row, request, machine)) return Obstacle::kBytes;
  if (way == Way::kCopies && !request.windowed) return Obstacle::kWindow;
  if (way == Way::kCopies && !cutsEvenly(row, request)) return Obstacle::kShards;
  if (request.ranks > mostPeersOf(row)) return Obstacle::kManyPeers;
  if (way == Way::kPulls && !mayPull(row, request)) return Obstacle::kInputs;
  if (way == Way::kSlots && machine.slotBytes < kChunkGrain) return Obstacle::kSlots;
  if (request.tokenBytes > mostToken(row, machine)) return Obstacle::kToken;
  if (way == Way::kLinks && machine.linkChunk < kChunkGrain) return Obstacle::kLinks;
  return Obstacle::kNone;
}

std::string reasonOf(const Descriptor& row, Obstacle obstacle, const Request& request,
                     const Machine& machine) {
  switch (obstacle) {
    case Obstacle::kNone:
      return "";
    case Obstacle::kOneRank:
      return "there is one rank only, and it has nobody to exchange with";
    case Obstacle::kManyRanks:
      return "it serves a single rank only";
    case Obstacle::kTwoRanks:
      return "between two ranks it sends as much as one_shot, with a hop more";
    case Obstacle::kHosts:
      return "it needs memory that all ranks share, and they are on " + std::to_string(machine.hosts) +
             " hosts";
    case Obstacle::kPlaces:
      return machine.hosts < 2 ? "all ranks are on one host"
                               : "it needs equally many ranks on each host, and two at least";
    case Obstacle::kOrder:
      return "it does not reduce in rank order, as STRETTO_DETERMINISTIC=1 asks";
    case Obstacle::kType:
      return "it serves sums and averages of float32, float16 and bfloat16 only";
    case Obstacle::kPeerAccess:
      return "some rank cannot read its peers' ordinary memory";
    case Obstacle::kBytes:
      return "it carries at most " + std::to_string(mostBytesOf(row, request, machine)) + " bytes";
    case Obstacle::kSlots:
      return "there are no slots of at least 64 bytes";
    case Obstacle::kLinks:
      return "there are no links with chunks of at least 64 bytes";
    case Obstacle::kWindow:
      return "its results do not go into a window that copy engines of all ranks can write "
             "(ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC), or they go where its input is";
    case Obstacle::kShards:
      return "there is no shard of as many times 16 bytes for each rank";
    case Obstacle::kInputs:
      return std::string(
                 row.algorithm == Algorithm::kTwoShot
                     ? "its input and its results do not lie in windows that all ranks can read "
                     : "its input does not lie in a window that all ranks can read, or its results go "
                       "where that is ") +
             "(ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC), or it scales its input";
    case Obstacle::kToken:
      return "a token is " + std::to_string(request.tokenBytes) + " bytes, and " +
             (machine.gpu ? "its lines hold " : "a slot holds ") + std::to_string(mostToken(row, machine));
    case Obstacle::kManyPeers:
      return "it reads from at most " + std::to_string(mostPeersOf(row)) + " ranks at a time";
  }
  return "unknown";
}

uint32_t mostChunk(const Descriptor& row, const Request& request, const Machine& machine) {
  switch (wayOf(row)) {
    case Way::kLocal:
    case Way::kPulls:
      return 0;
    case Way::kLines:
      if (row.protocol == Protocol::kWarpChunks) return toGrain(mostInWarpChunks(row, request, machine));
      return machine.gpu || row.mostBytes == 0 ? kMostAny : toGrain(row.mostBytes);
    case Way::kPeerAccess:
      return kMostAny;
    case Way::kCopies:
      return reduces(row.collective) ? kMostAny : 0;
    case Way::kLinks:
      return toGrain(machine.linkChunk);
    case Way::kSlots:
      break;
  }
  const size_t slot = toGrain(machine.slotBytes);
  return toGrain(isSharded(row) ? slot * static_cast<size_t>(request.ranks) : slot);
}

uint32_t preferredChunk(const Descriptor& row, const Request& request, const Machine& machine) {
  const uint32_t most = mostChunk(row, request, machine);
  const Way way = wayOf(row);
  if (row.protocol == Protocol::kWarpChunks) return toGrain(preferredInWarpChunks(row, request, machine));
  if (way == Way::kCopies) return std::min(most, toGrain(preferredCopy(row, request)));
  if (way == Way::kLocal || way == Way::kLines || machine.gpu) return most;
  size_t wanted = isSharded(row) ? kSlotPiece * static_cast<size_t>(request.ranks) : kSlotPiece;
  if (way == Way::kLinks && machine.hosts > 1) return most;  // a message costs more than a chunk in memory
  if (way == Way::kLinks) {
    const size_t part = linkMessage(row, request) / kLinkPieces;
    wanted = std::max(kLeastLinkPiece, (part + kLinkGrain - 1) / kLinkGrain * kLinkGrain);
  }
  return toGrain(std::min<size_t>(wanted, most));
}

bool streams(const Request& request, const Machine& machine) {
  if (machine.cacheBytes == 0 || machine.cacheBytes > kMostOwnCache) return isLarge(request);
  const double buffers = inputBytes(request) + resultBytes(request);
  return request.ranks * buffers > kCacheShare * static_cast<double>(machine.cacheBytes);
}

namespace {

// To add to tokens and normalise them, and to begin a pass of its own for that.
double normTime(const Request& request) {
  const bool norms = request.collective == Collective::kAllReduceAddRmsNorm;
  return norms ? static_cast<double>(request.bytes) / kHost.norm : 0.0;
}
double passOfNorm(const Descriptor& row, const Request& request) {
  return request.collective == Collective::kAllReduceAddRmsNorm && row.normApart ? kHost.pass : 0.0;
}

// In a pipeline the last rank's first chunk has been through all those before it.
double firstChunk(const Request& request, uint32_t chunkBytes) {
  return std::min(static_cast<double>(chunkBytes), static_cast<double>(request.bytes));
}

// What one rank does in an operation, and with how many ranks it shares its core and its host's network card.
struct Load {
  algorithms::Cost cost;
  double crowding = 1;  // ranks for each core
  int together = 1;     // ranks of a host that do the same at once
};

// Bytes that leave the host that sends most of them. Ranks are taken to be numbered host by host.
double bytesOffHost(const Descriptor& row, const Request& request, const Machine& machine, const Load& load) {
  const int perHost = (request.ranks + machine.hosts - 1) / machine.hosts;
  const double bytes = load.cost.wireBytes * load.together;
  if (row.algorithm == Algorithm::kPairwise && request.ranks > 1)
    return bytes * perHost * (request.ranks - perHost) / (request.ranks - 1);
  if (row.algorithm != Algorithm::kTree) return bytes;  // a ring and a chain leave each host once
  constexpr int kArity = 2;
  std::vector<int> edges(static_cast<size_t>(machine.hosts));
  for (int rank = 1; rank < request.ranks; ++rank) {
    const int here = rank / perHost, above = (rank - 1) / kArity / perHost;
    if (here == above) continue;
    ++edges[static_cast<size_t>(here)];
    ++edges[static_cast<size_t>(above)];
  }
  // Each edge carries the buffer, up, down, or both; a host's end of it sends in one of the two directions.
  return *std::max_element(edges.begin(), edges.end()) * static_cast<double>(request.bytes) * load.together;
}

// Over a net a rank's processor moves bytes into sockets and out of them, while the hosts' cards move them
// from host to host: the slower of both decides. A link holds several chunks, so that those behind the first
// cost a message.
double predictOverHosts(const Descriptor& row, const Request& request, const Machine& machine,
                        uint32_t chunkBytes, const Load& load) {
  const HostLinks& links = machine.hostLinks;
  const algorithms::Cost& cost = load.cost;
  const bool toAll = row.algorithm == Algorithm::kPairwise;
  const double crowding = std::max(1.0, load.crowding);
  const double partners = toAll ? request.ranks - 1 : 1;
  const double hop = links.hop * (1 + 0.25 * (partners - 1)) + turnTime(load.crowding);
  const double further = (turnsOf(row, request, chunkBytes) - 1) * links.message;

  double waiting = cost.hops * (hop + further);
  if (toAll || row.algorithm == Algorithm::kTree || row.algorithm == Algorithm::kChain) {
    const double first = firstChunk(request, chunkBytes) / links.rate;
    waiting = cost.hops * hop + further + std::max(0.0, cost.hops - 1) * first;
  }
  // If one link alone is about as fast as all links of a host together, the card limits both. The measured
  // rate then says nothing of the processor, and the rate of loopback is taken for it.
  constexpr double kApart = 1.3;
  const double ofProcessor = links.hostRate > kApart * links.rate ? links.rate : HostLinks().rate;
  const double byProcessor = cost.wireBytes / std::max(ofProcessor, links.rate) * crowding;
  const double byCard =
      std::max(cost.wireBytes / links.rate, bytesOffHost(row, request, machine, load) / links.hostRate);
  const double local = cost.localBytes / kHost.local * crowding;
  return kHost.fixed + waiting + std::max(byProcessor, byCard) + local;
}

// `crowding`: ranks of all hosts for each core. `together`: ranks of a host that do the same at once.
double predictAmong(const Descriptor& row, const Request& request, const Machine& machine,
                    uint32_t chunkBytes, double crowding, int together = 1) {
  const Way way = wayOf(row);
  const int ranks = isPointToPoint(row.collective) ? 2 : request.ranks;
  const algorithms::Cost cost =
      algorithms::costOf(row, ranks, static_cast<double>(request.bytes), machine.directions);
  if (machine.hosts > 1) {
    return predictOverHosts(row, request, machine, chunkBytes, {cost, crowding, together}) +
           passOfNorm(row, request) + normTime(request) * std::max(1.0, crowding);
  }
  const double hop = hopTime(way, ranks - 1, crowding);
  const double turns = turnsOf(row, request, chunkBytes);

  double moving = cost.wireBytes / wireRate(way, machine) + cost.localBytes / kHost.local;
  double waiting = cost.hops * turns * hop;
  if (way == Way::kPeerAccess) {
    waiting = cost.hops * hop;
    if (!machine.sameProcess) waiting += kHost.kernelCall * (ranks - 1);
  } else if (row.algorithm == Algorithm::kTree || row.algorithm == Algorithm::kChain) {
    const double first = firstChunk(request, chunkBytes) / wireRate(way, machine);
    waiting = cost.hops * hop + (turns - 1) * hop + std::max(0.0, cost.hops - 1) * first;
  }
  if (isLarge(request)) {
    const bool pushesAll =
        row.algorithm == Algorithm::kOneShot && row.collective != Collective::kAllReduceAddRmsNorm;
    moving *= pushesAll ? kHost.largeOneShot : kHost.largeOther;
  }
  waiting += passOfNorm(row, request);
  moving += normTime(request);
  if (row.collective == Collective::kAllReduceAddRmsNorm) {
    // Sums go to peers line by line, between the passes over a token: half as fast as a copy does it.
    const bool pushesSums = row.algorithm == Algorithm::kTwoShot && way == Way::kSlots;
    if (pushesSums) moving += cost.wireBytes / 2 / kHost.push;
  }
  // Ranks that take turns on a core also take turns moving bytes.
  moving *= std::max(1.0, crowding);
  return kHost.fixed + waiting + moving;
}

const Descriptor& rowOf(Collective collective, Algorithm algorithm) {
  const auto rows = algorithms::descriptors();
  return *std::find_if(rows.begin(), rows.end(), [&](const Descriptor& row) {
    return row.collective == collective && row.algorithm == algorithm && row.protocol == Protocol::kSimple;
  });
}

double crowdingOf(const Request& request, const Machine& machine) {
  return static_cast<double>(request.ranks) / std::max(1, machine.cores);
}

// Its time and chunk, among the ranks of one host or one rank of each.
Stage completed(Stage stage, const Request& request, const Machine& machine) {
  Machine part = machine;
  part.hosts = stage.between ? machine.hosts : 1;
  part.perHost = 1;
  part.linkChunk = stage.between ? machine.farChunk : machine.nearChunk;
  stage.ranks = stage.between ? machine.hosts : machine.perHost;
  stage.chunkBytes = toGrain(part.linkChunk);
  Request own = request;
  own.collective = stage.collective;
  own.bytes = stage.bytes;
  own.ranks = stage.ranks;
  stage.microseconds = predictAmong(rowOf(stage.collective, stage.algorithm), own, part, stage.chunkBytes,
                                    crowdingOf(request, machine), machine.perHost);
  return stage;
}

}  // namespace

std::vector<Stage> stagesOf(const Request& request, const Machine& machine) {
  const size_t share = request.bytes / static_cast<size_t>(machine.perHost);
  const size_t ofRail = request.bytes * static_cast<size_t>(machine.hosts);
  using C = Collective;
  std::vector<Stage> stages;
  if (request.collective == C::kAllReduce) {
    stages = {{C::kReduceScatter, Algorithm::kRing, false, 0, share},
              {C::kAllReduce, algorithms::alongRail(machine.hosts), true, 0, share},
              {C::kAllGather, Algorithm::kRing, false, 0, share}};
  } else if (request.collective == C::kAllGather) {
    stages = {{C::kAllGather, Algorithm::kRing, true, 0, request.bytes},
              {C::kAllGather, Algorithm::kRing, false, 0, ofRail}};
  } else {
    stages = {{C::kBroadcast, Algorithm::kChain, true, 0, request.bytes},
              {C::kBroadcast, Algorithm::kChain, false, 0, request.bytes}};
  }
  for (Stage& stage : stages) stage = completed(stage, request, machine);
  return stages;
}

double predict(const Descriptor& row, const Request& request, const Machine& machine, uint32_t chunkBytes) {
  if (machine.gpu) return predictCuda(row, request, machine, chunkBytes);
  if (row.algorithm != Algorithm::kStages)
    return predictAmong(row, request, machine, chunkBytes, crowdingOf(request, machine));
  double sum = 0;
  for (const Stage& stage : stagesOf(request, machine)) sum += stage.microseconds;
  return sum;
}

}  // namespace stretto::planner
