// The recording format STRETREC version 1 as structures: docs/recording.md says what every field means. The
// plugin writes through them, tests read through them. All little-endian, all multiples of 8 bytes, no
// padding that is not named.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto::profiler::format {

inline constexpr char kMagic[8] = {'S', 'T', 'R', 'E', 'T', 'R', 'E', 'C'};
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kHeaderBytes = 4096;
inline constexpr uint32_t kSegmentMagic = 0x47455353;
inline constexpr uint32_t kSegmentHeaderBytes = 64;
inline constexpr uint32_t kNone32 = 0xffffffff;
inline constexpr uint64_t kNone64 = ~uint64_t{0};

enum class Mode : uint32_t { kStream = 1, kFlight = 2 };
enum class Clock : uint8_t { kTimeStampCounter = 1, kMonotonic = 2 };
enum class SegmentKind : uint32_t { kDefinitions = 1, kEvents = 2 };
enum class Kind : uint8_t {
  kStart = 1,
  kStop = 2,
  kState = 3,
  kInit = 4,
  kFinalize = 5,
  kThread = 6,
  kString = 32,
  kContext = 33,
  kThreadDefinition = 34,
  kAnchor = 35,
  kFork = 36,
  kForeignContext = 37,
  kSample = 38,
};

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t headerBytes;
  uint32_t segmentBytes;
  uint32_t mode;
  uint64_t segments;
  uint64_t dropped;
  uint64_t processStart;
  uint32_t pid;
  uint16_t tag;
  uint8_t clock;
  uint8_t state;
  uint8_t boot[16];
  uint64_t mask;
  uint32_t abi;
  uint32_t ncclVersion;
  uint64_t unmatched;
  uint64_t selfTicks;
  uint64_t selfSamples;
  char host[64];
  char program[256];
  char error[64];
  // When events are recorded: from, and up to, a moment of CLOCK_MONOTONIC in nanoseconds, and again each
  // time that so many have passed (0: once). Others may write them while the process runs (first the end, as
  // 0); it looks every second.
  uint64_t windowFrom;
  uint64_t windowTo;
  uint64_t windowEach;
  char stretto[24];  // the version of Stretto, if that is the library; else empty
};
static_assert(offsetof(Header, segments) == 24 && offsetof(Header, pid) == 48 &&
              offsetof(Header, state) == 55);
static_assert(offsetof(Header, boot) == 56 && offsetof(Header, mask) == 72 &&
              offsetof(Header, unmatched) == 88);
static_assert(offsetof(Header, host) == 112 && offsetof(Header, program) == 176);
static_assert(offsetof(Header, error) == 432 && offsetof(Header, windowFrom) == 496 &&
              sizeof(Header) <= kHeaderBytes);

struct Segment {
  uint32_t magic;
  uint32_t kind;
  uint64_t committed;
  uint64_t sequence;
  uint64_t firstTicks;
  uint64_t dropped;
  uint32_t thread;
  uint32_t generation;
  uint64_t zero[2];
};
static_assert(sizeof(Segment) == kSegmentHeaderBytes);

struct Record {
  uint16_t bytes;
  uint8_t kind;
  uint8_t type;
  uint32_t context;
  uint64_t ticks;
};
static_assert(sizeof(Record) == 16);

struct String {
  Record record;
  uint32_t number;
  uint32_t length;
};
struct Context {
  Record record;
  uint32_t number;
  int32_t rank;
  int32_t ranks;
  int32_t nodes;
  uint64_t communicator;
  uint32_t name;
  uint32_t abi;
};
struct Thread {
  Record record;
  uint32_t number;
  uint32_t tid;
  uint32_t name;
  uint32_t zero;
};
struct Anchor {
  Record record;
  uint64_t monotonic;
  uint64_t realtime;
  uint64_t uncertainty;
};
struct Fork {
  Record record;
  uint32_t parentPid;
  uint32_t zero;
};
struct ForeignContext {
  Record record;
  uint32_t number;
  uint32_t tag;
  uint32_t foreignNumber;
  uint32_t zero;
};
struct Sample {
  Record record;
  uint32_t number;
  uint32_t zero;
  uint64_t every;
};
static_assert(sizeof(Sample) == 32);
static_assert(sizeof(Context) == 48 && sizeof(Anchor) == 40 && sizeof(ForeignContext) == 32);

struct Start {
  Record record;
  uint64_t id;
  uint64_t parent;
  int32_t rank;
  uint32_t threads;
};
static_assert(sizeof(Start) == 40);
struct Coll {
  Start start;
  uint64_t sequence;
  uint64_t count;
  uint64_t sendBuffer;
  uint64_t receiveBuffer;
  uint64_t parentGroup;
  uint64_t userTag;
  uint64_t trafficBytes;
  uint32_t function;
  uint32_t dataType;
  uint32_t algorithm;
  uint32_t protocol;
  uint32_t kernelVariant;
  int32_t root;
  uint16_t channels;
  uint8_t warps;
  uint8_t isSymmetric;
  uint32_t op;
};
static_assert(sizeof(Coll) == 128);
// v1 alone says these two; its records are longer.
struct CollV1 {
  Coll coll;
  uint32_t isCollnet;
  uint32_t isNvls;
};
struct P2p {
  Start start;
  uint64_t count;
  uint64_t buffer;
  uint64_t parentGroup;
  uint64_t userTag;
  uint32_t function;
  uint32_t dataType;
  int32_t peer;
  uint32_t channels;
};
struct ProxyOp {
  Start start;
  int32_t pid;
  uint32_t channel;
  int32_t peer;
  int32_t steps;
  int32_t chunkBytes;
  uint32_t isSend;
};
struct ProxyStep {
  Start start;
  int32_t step;
  uint32_t zero;
};
struct KernelCh {
  Start start;
  uint32_t channel;
  uint32_t zero;
  uint64_t gpuNs;
};
struct NetPlugin {
  Start start;
  int64_t plugin;
  uint8_t data[40];
};
struct GroupApi {
  Start start;
  int32_t depth;
  uint32_t graphCaptured;
};
struct CollApi {
  Start start;
  uint64_t count;
  uint64_t stream;
  uint64_t userTag;
  uint32_t function;
  uint32_t dataType;
  int32_t root;
  uint32_t graphCaptured;
};
struct P2pApi {
  Start start;
  uint64_t count;
  uint64_t stream;
  uint64_t userTag;
  uint32_t function;
  uint32_t dataType;
  uint32_t graphCaptured;
  uint32_t zero;
};
struct KernelLaunch {
  Start start;
  uint64_t stream;
};
struct CeColl {
  Start start;
  uint64_t sequence;
  uint64_t count;
  uint64_t sendBuffer;
  uint64_t receiveBuffer;
  uint64_t stream;
  uint64_t userTag;
  uint64_t ceSequence;
  uint32_t function;
  uint32_t dataType;
  int32_t root;
  uint32_t syncStrategy;
  uint32_t intraBatchSync;
  uint32_t batchSize;
  uint32_t batches;
  uint32_t zero;
};
struct CeSync {
  Start start;
  uint32_t isComplete;
  int32_t ranks;
};
struct CeBatch {
  Start start;
  uint64_t operations;
  uint64_t bytes;
  uint64_t useIntraSync;
};
struct KernelPhase {
  Start start;
  uint32_t channel;
  uint32_t phase;
  uint32_t phaseName;
  uint32_t zero;
  uint64_t gpuNs;
};
struct Unknown {
  Start start;
  uint64_t type;
};
static_assert(sizeof(P2p) == 88 && sizeof(ProxyOp) == 64 && sizeof(ProxyStep) == 48 &&
              sizeof(KernelCh) == 56);
static_assert(sizeof(NetPlugin) == 88 && sizeof(GroupApi) == 48 && sizeof(CollApi) == 80 &&
              sizeof(P2pApi) == 80);
static_assert(sizeof(KernelLaunch) == 48 && sizeof(CeColl) == 128 && sizeof(CeSync) == 48 &&
              sizeof(CeBatch) == 64);
static_assert(sizeof(KernelPhase) == 64 && sizeof(CollV1) == 136);

struct Stop {
  Record record;
  uint64_t id;
};
struct State {
  Record record;
  uint64_t id;
  uint32_t state;
  uint32_t count;
  uint64_t argument;
  uint64_t argument2;
};
// init and finalize.
struct Mark {
  Record record;
  uint64_t zero;
};
// Kind 6: the records after it in this segment are of another thread.
struct ThreadChange {
  Record record;
  uint32_t thread;
  uint32_t zero;
};
static_assert(sizeof(Stop) == 24 && sizeof(State) == 48 && sizeof(Mark) == 24 && sizeof(ThreadChange) == 24);

}  // namespace stretto::profiler::format
