// What happens in one round: who the ranks are, which operations they call, and who does what to whom. All of
// it is drawn from the round's seed and the options, so that every process of the round draws the same plan
// and a failure can be repeated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nccl.h"

namespace hostile {

inline constexpr int kMaxRanks = 12;
inline constexpr int kNobody = -1;

enum class Layout { kThreads, kProcesses, kMixed };

// What a round is about. One row of the table at the end of a run each.
enum class Kind {
  kNone,         // no fault
  kKill,         // a process ends by SIGKILL
  kTwo,          // two ranks are lost, one after the other
  kStop,         // a process is stopped for less than a second
  kStopFault,    // a process is stopped, and another fault happens meanwhile
  kAbort,        // a rank aborts between two calls
  kAbortThread,  // another thread aborts a rank that is in a call
  kRevoke,       // a rank revokes
  kDestroy,      // a rank destroys its communicator while the others go on
  kExit,         // a process exits without destroying anything
  kLate,         // an operation after ncclCommFinalize
  kFork,         // a rank forks, and the child meddles
  kDisagree,     // a rank calls something else
  kMaker,        // the process that made the unique id, which is no rank, goes; then another fault
  kStrangers,    // garbage arrives at the bootstrap's ports
  kLeave,        // ranks leave in peace, then one of those that go on is lost
  kInit,         // a rank is lost while the communicator is made
  kSplit,        // a rank is lost while a child is made
  kFinal,        // a rank is lost while the ranks leave
  kWindow,       // a rank is lost while operations run in registered windows
  kOneSided,     // a rank is lost while ranks put into each other's windows
  kGrow,         // a rank is lost while a communicator grows, one that joins or one that was there
};
inline constexpr int kKinds = 22;
const char* nameOf(Kind kind);

// What a rank, its process or somebody else does. kKill, kStop are done by the conductor, the rest by the
// rank.
enum class Act { kKill, kStop, kAbort, kAbortThread, kRevoke, kDestroy, kExit, kFork, kLate };
const char* nameOf(Act act);

struct Event {
  Act act = Act::kKill;
  int rank = kNobody;
  int step = 0;          // in which step of this rank; kInitStep and kFinalStep too
  int delay = 0;         // microseconds after the rank has entered the step
  bool follows = false;  // not before the first event has happened
  int variant = 0;
};
inline constexpr int kInitStep = -1;

enum class Function {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBcast,
  kGather,
  kScatter,
  kRing,
  kPairs,
  kPuts  // a ring of puts: only in windows
};
inline constexpr int kFunctions = 12;
inline constexpr int kWithoutWindows = 11;  // so many of them need none
inline constexpr int kCollectives = 9;      // so many of them are no transfers
const char* nameOf(Function function);
bool isReduction(Function function);
bool isTransfer(Function function);

inline constexpr int kPreMulSum = 5;  // an operator of Call::op beside those of ncclRedOp_t

// One operation as all ranks call it.
struct Call {
  Function function = Function::kAllReduce;
  int type = ncclFloat32;
  int op = ncclSum;
  size_t count = 0;
  int root = 0;
  bool inPlace = false;
  uint32_t number = 0;  // part of what the data is made of
};

// How a rank's call differs from what the others call in a step.
enum class Quirk { kNone, kCount, kType, kOp, kRoot, kFunction, kMissing, kSwapped };

// What each rank gives to a split. Of a shrink and of a growth: kNobody for who is left out.
struct Split {
  std::vector<int> colours;
  std::vector<int> keys;
};

struct Step {
  enum class Do { kCalls, kSplit, kShrink, kGrow, kDrop } what = Do::kCalls;
  std::vector<Call> calls;  // several: in one group
  bool onChild = false;
  bool synchronise = true;     // with host streams: whether what was enqueued is awaited and compared here
  Split child;                 // of a growth: all ranks in their order there
  std::vector<Split> further;  // in one group with the child, each used once
  std::vector<bool> joins;     // of a growth: who is new
  int laggard = kNobody;       // enters this much later
  int lag = 0;                 // microseconds
  int memory = 0;              // where buffers come from
};

// How ranks go on that were told of an error.
enum class Aftermath { kAbort, kDestroy, kShrink };
enum class Maker { kRank, kProcess };

struct Plan {
  uint64_t seed = 0;
  Kind kind = Kind::kNone;
  int ranks = 2;
  Layout layout = Layout::kThreads;
  std::vector<int> processOf;  // of each rank
  bool blocking = true;
  bool streams = false;
  bool finalise = false;  // before the destroy at the end
  Maker maker = Maker::kRank;
  int makerRank = 0;
  int makerActs = 0;  // kMaker: 0 exits, 1 is killed, 2 is stopped
  // Forced for all-reduce, all-gather and their like where they have it; or empty.
  std::string algorithm;
  std::string protocol;
  std::vector<Step> steps;
  std::vector<Event> events;
  int odd = kNobody;  // who disagrees
  Quirk quirk = Quirk::kNone;
  int quirkStep = 0;
  Call quirkCall;
  Aftermath aftermath = Aftermath::kAbort;
  bool waits = false;  // who is told waits for the others before it goes on
  int tail = -1;       // kLeave: from this step on, only members of the tail go on
  std::vector<bool> inTail;
  bool windows = false;  // buffers are registered windows
  bool device = false;   // of ranks on a GPU

  int processes() const;
  int finalStep() const { return static_cast<int>(steps.size()); }
  // Whether a rank joins others in a step that cannot know of it before.
  bool joinsAt(int rank, int step) const;
  bool isVictim(int rank) const;  // lost by an event, or by one of its process
  std::vector<int> victims() const;
  bool expectsErrors() const;  // of ranks that are no victims
  std::string text() const;
};

struct Options {
  double seconds = 0;
  long faults = 0;
  uint64_t seed = 0;
  uint64_t round = 0;
  bool oneRound = false;
  int repeat = 1;
  int jobs = 1;
  int ranks = 0;
  int slow = 1;
  bool verbose = false;
  bool device = false;
  bool net = false;  // every link is a net link, as between hosts
  std::string kinds, layout, json;
};

// Splits of a seed: the same everywhere, unlike what the standard library's distributions give.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

Plan makePlan(uint64_t seed, const Options& options);

// The ranks of `rank`'s child in their order there; empty if it has none.
std::vector<int> membersOf(const Split& split, int rank);
// Of all children that a step makes for it, the one that is used first.
std::vector<std::vector<int>> allMembersOf(const Step& step, int rank);

size_t sizeOf(int type);
const char* nameOfType(int type);

}  // namespace hostile
