// Events: what every layer says about what it does, while it does it. An event is 64 bytes, goes into a ring
// that belongs to the calling thread, and is overwritten when nobody has read it in time; a writer takes no
// lock and never waits. Off (the default) it costs one relaxed load and a branch. Readers (profiler plugins,
// recorder, timeline) call snapshot or drain from any thread. Any folder may include this.
//
// Stamps are handed in by the caller, from platform::ticks(): this folder lies below platform/, and one stamp
// often serves the flight recorder and the ring together. Reading the stamp is most of an event's cost.
//
//   if (events::on()) id = events::start(events::Type::kCollective, parent, payload, platform::ticks());
//   ...
//   if (id != events::Id::kNone) events::stop(id, platform::ticks());
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/status.hpp"
#include "base/types.hpp"
#include "base/watch.hpp"

namespace stretto::events {

// 1 to 12 are NCCL's profiler events: type N is bit N-1 of its activation mask. Its hierarchy is
// GroupApi > {CollectiveApi > Collective > {ProxyOp > ProxyStep > NetPlugin, KernelChannel},
// P2pApi > P2p > {the same}, KernelLaunch}; ProxyControl stands alone. From 32 on they are ours.
enum class Type : uint8_t {
  kNone = 0,
  kGroup = 1,
  kCollective = 2,
  kP2p = 3,
  kProxyOp = 4,
  kProxyStep = 5,
  kProxyControl = 6,
  kKernelChannel = 7,
  kNetPlugin = 8,
  kGroupApi = 9,
  kCollectiveApi = 10,
  kP2pApi = 11,
  kKernelLaunch = 12,
  kWait = 32,  // a wait on a peer that was not over at once
  kSleep,      // the part of it spent asleep
  kInit,       // all of ncclCommInitRank; parent of the phases that follow
  kInitBootstrap,
  kInitExchange,
  kInitTopology,
  kInitConnect,
  kFinalize,
  kAbort,
};
inline constexpr int kLastNcclType = 12;
const char* nameOf(Type type);
// The bit of NCCL's activation mask; 0 for the types that NCCL does not know.
constexpr uint64_t ncclBit(Type type) {
  const int number = static_cast<int>(type);
  return number >= 1 && number <= kLastNcclType ? uint64_t{1} << (number - 1) : 0;
}

enum class Phase : uint8_t { kStart, kStop, kState, kInstant };

// Names one event in all processes of a job: {type: 8, process tag: 16, counter: 40}, type highest. Opaque
// to whoever is given one, never an address, never reused while a trace lasts, never zero but for kNone.
enum class Id : uint64_t { kNone = 0 };
constexpr Type typeOf(Id id) {
  return static_cast<Type>(static_cast<uint64_t>(id) >> 56);
}
constexpr uint16_t processTagOf(Id id) {
  return static_cast<uint16_t>(static_cast<uint64_t>(id) >> 40);
}

inline constexpr uint8_t kUnsaid = 0xff;  // for the small fields below

// What an event is about. Fill what is known.
struct Payload {
  uint64_t communicator = 0;  // id of the communicator, equal on all its ranks
  uint64_t sequence = 0;      // number of the operation on it; 0 where operations are not numbered
  uint64_t bytes = 0;
  int32_t rank = -1;           // ours
  int32_t peer = -1;           // or the root
  uint8_t function = kUnsaid;  // Collective
  uint8_t dataType = kUnsaid;
  uint8_t op = kUnsaid;
  uint8_t algorithm = kUnsaid;  // algorithms::Algorithm
  uint8_t protocol = kUnsaid;
  uint8_t detail = 0;  // kStart: channel; kStop: Code; kState: number of the state
};

// As it lies in the ring. A stop or a state carries the id of its start and leaves the rest of the payload
// unsaid, but for `detail` and `bytes`.
struct Event {
  uint64_t ticks = 0;
  Id id = Id::kNone;
  Id parent = Id::kNone;
  uint64_t communicator = 0;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  int32_t rank = -1;
  int32_t peer = -1;
  Type type = Type::kNone;
  Phase phase = Phase::kStart;
  uint8_t function = kUnsaid;
  uint8_t dataType = kUnsaid;
  uint8_t op = kUnsaid;
  uint8_t algorithm = kUnsaid;
  uint8_t protocol = kUnsaid;
  uint8_t detail = 0;
};
static_assert(sizeof(Event) == 64 && std::is_trivially_copyable_v<Event>);

inline bool on() {
  return watch::watches(watch::kEventRings);
}
// Takes effect for later starts; an event that has started is still stopped.
void enable(bool wanted);
// Does what STRETTO_EVENTS says, if it is set; to be called when a communicator is made.
Status enableFromEnvironment();

// Each records one event of the calling thread, whether on() or not: ask first. start and instant return the
// new event's id; kNone from a thread that is ending. stop and state ignore kNone.
Id start(Type type, Id parent, const Payload& payload, uint64_t ticks);
Id instant(Type type, Id parent, const Payload& payload, uint64_t ticks);
void stop(Id id, uint64_t ticks, Code outcome = Code::kOk, uint64_t bytes = 0);
void state(Id id, uint8_t number, uint64_t ticks, uint64_t argument = 0);

// Start and stop around a block. `clock` is platform::ticks.
class Scope {
 public:
  using Clock = uint64_t (*)();
  Scope(Type type, Id parent, const Payload& payload, Clock clock) : clock_(clock) {
    if (on()) id_ = start(type, parent, payload, clock());
  }
  ~Scope() {
    if (id_ != Id::kNone) stop(id_, clock_(), outcome_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  Id id() const { return id_; }  // kNone when events are off
  void setOutcome(Code outcome) { outcome_ = outcome; }

 private:
  Clock clock_;
  Id id_ = Id::kNone;
  Code outcome_ = Code::kOk;
};

// What one thread recorded, oldest first.
struct ThreadEvents {
  int32_t thread = 0;        // the system's thread id
  bool ended = false;        // the thread is gone
  uint64_t recorded = 0;     // since the thread's first event
  uint64_t overwritten = 0;  // since then, before drain could read them
  std::vector<Event> events;
};
struct Snapshot {
  std::vector<ThreadEvents> threads;
  uint64_t lost = 0;  // unread events of threads that ended long ago and had to make room
};
// Copies what the rings hold now; the events stay. Writers go on meanwhile.
Snapshot snapshot();
// Takes what has come since the last drain. Rings of threads that have ended go once they are drained.
Snapshot drain();

// Events per ring for threads that record their first event later; a power of two from 2 to 2^24, 8192 at
// first. False and no change otherwise.
bool setRingCapacity(size_t events);

}  // namespace stretto::events
