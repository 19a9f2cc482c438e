// What the planner is asked and what it answers. Plain values: a Plan says how one operation will run, and
// why; executors obey it and decide nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "base/names.hpp"
#include "base/status.hpp"
#include "base/types.hpp"

namespace stretto::planner {

using algorithms::Algorithm;
using algorithms::Directions;
using algorithms::Protocol;

struct Request {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  size_t bytes = 0;  // as the collective counts them: Arguments::count times the element's size
  int ranks = 1;
  size_t tokenBytes = 0;  // of an all-reduce with RMSNorm; 0: it is not known
  // Between GPUs: the results go to where copy engines of all ranks may write them
  // (communicator/device/registered.hpp).
  bool windowed = false;
  // Of an all-reduce between GPUs: kernels of all ranks may read the inputs, and write no results there; they
  // may read inputs and results.
  bool pullsOnce = false;
  bool pullsTwice = false;
};

inline constexpr int kMostBlocks = 255;  // that a plan can hold; how many there are is the machine's to say
inline constexpr size_t kMostChunkBytes = size_t{1} << 30;  // of a chunk that somebody asks for

// How GPUs reach each other, as far as times depend on it: of several pairs the largest value counts.
enum class Links : uint8_t { kNvlink, kPcie, kUnknown, kSameGpu };
inline constexpr int kLinkKinds = 4;
static_assert(hasValues<Links, kLinkKinds>());
constexpr const char* nameOf(Links links) {
  constexpr const char* kNames[] = {"nvlink", "pcie", "unknown", "same_gpu"};
  return nameIn(kNames, links);
}

// Which GPUs the ranks are on: what measurements are kept by. The name is empty where they differ.
struct Gpus {
  char name[64] = {};
  Links links = Links::kUnknown;
};

// What a message between CPU ranks of different hosts takes. As it stands here: TCP over loopback on two
// cores. `stretto tune --hosts` measures it and writes it into the table ("between_hosts"), which all ranks
// share.
struct HostLinks {
  double hop = 6;         // microseconds of a small message from rank to rank
  double message = 3;     // of each further chunk that follows one: a call to send it and one to receive it
  double rate = 1500;     // bytes per microsecond of one link, while as much comes the other way
  double hostRate = 1e4;  // of all links of a host together
  bool measured = false;  // on the hosts at hand
};

// What is the same for every operation of a communicator. Equal on all ranks, except for cacheBytes.
struct Machine {
  int cores = 1;               // cores the ranks of this host share; of several hosts, all of them
  int hosts = 1;               // that ranks are on: between them there are links alone
  int perHost = 0;             // ranks of each; 0: some have more than others
  bool sameProcess = false;    // all ranks are threads of one process
  bool reach = false;          // every rank can read every peer's ordinary memory
  uint8_t rings = 1;           // STRETTO_RINGS: how many a ring algorithm uses
  bool deterministic = false;  // STRETTO_DETERMINISTIC: only algorithms that reduce in rank order
  // STRETTO_RING_GATHER: how a ring passes finished blocks on.
  Directions directions = Directions::kOneWay;
  size_t slotBytes = 0;
  size_t linkChunk = 0;  // of a link between any two ranks
  // With several hosts: of links inside them, and between them.
  size_t nearChunk = 0;
  size_t farChunk = 0;
  HostLinks hostLinks;
  // Ranks are GPUs: how many blocks can take part at most, with lines, runs or chunks, how many are insisted
  // on (0: the planner chooses), and what one block's lines hold.
  bool gpu = false;
  Gpus gpus;
  int channels = 0;
  bool fewBlocks = false;  // there could be more blocks, but users allow no more
  int warpChunkChannels = 0;
  int deepChannels = 0;
  int blocks = 0;
  size_t lineBytes = 0;
  size_t ll128Bytes = 0;
  size_t lamportBytes = 0;
  size_t warpChunkBytes = 0;
  // Last-level cache, 0 if unknown: larger results are written past it. Decides Plan::stream only, which each
  // rank may set for itself.
  size_t cacheBytes = 0;
};

// One stage of a plan by stages: what so many ranks do, inside each host or, `between`, on different ones.
struct Stage {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  bool between = false;
  int ranks = 1;
  size_t bytes = 0;  // as the collective counts them
  uint32_t chunkBytes = 0;
  double microseconds = 0;
};

enum class Why : uint8_t { kOnlyOne, kModel, kTable, kForced };
constexpr const char* nameOf(Why why) {
  constexpr const char* kNames[] = {"only_one", "model", "table", "forced"};
  return nameIn(kNames, why);
}

constexpr algorithms::Device deviceOf(const Machine& machine) {
  return machine.gpu ? algorithms::Device::kCuda : algorithms::Device::kHost;
}

struct Plan {
  Algorithm algorithm = Algorithm::kLocal;
  Protocol protocol = Protocol::kSimple;
  Why why = Why::kModel;
  uint8_t rings = 1;
  Directions directions = Directions::kOneWay;
  uint8_t blocks = 1;       // of a kernel; 1 on the host
  uint32_t chunkBytes = 0;  // for Arguments::chunkBytes; a multiple of 64; 0 where there are none
  bool stream = false;
  float predictedMicroseconds = 0;

  bool operator==(const Plan&) const = default;
};

// One row of an explanation: a candidate, its predicted time, and why it won, lost or cannot run.
struct Candidate {
  Plan plan;
  bool possible = false;
  bool chosen = false;
  std::string reason;
};

}  // namespace stretto::planner
