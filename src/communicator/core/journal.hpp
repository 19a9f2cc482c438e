// The one point where a rank's operations are told of: each is numbered, announced to the other ranks,
// recorded, counted, and told to a profiler plugin, when it begins and when it has ended. The operation that
// runs is a value (Running), which whoever runs it passes on.
//
// Invariant: every operation that was entered is concluded exactly once. Collectives are numbered alike on
// all ranks; transfers and one-sided operations take no numbers.
//
// Threads: the one whose turn it is, but for flight().note() and what Profile says of itself.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/core/prepared.hpp"
#include "communicator/core/running.hpp"
#include "communicator/core/tags.hpp"
#include "communicator/profiler/profile.hpp"
#include "observe/flight.hpp"
#include "planner/plan.hpp"
#include "platform/clock.hpp"
#include "primitives/call_record.hpp"

namespace stretto::communicator {

// Times of initialisation by phase, and what has been done since.
struct Counters {
  uint64_t initNanoseconds = 0;
  uint64_t bootstrapNanoseconds = 0;
  uint64_t connectNanoseconds = 0;
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t allocations = 0;
};

class Journal {
 public:
  Journal(const Identity& self, Health& health, const Connections& connections)
      : self_(self), health_(health), connections_(connections), onDevice_(self.onDevice()) {}

  // Once the ranks are connected: operations are announced in the own window. Opens the flight recorder, and
  // asks the profiler plugin.
  Status opens(const char* library);
  Status opensProfile(int hosts);
  // Everything but the counters is let go of.
  void closes();

  // The next collective. Its tag holds all operations before it, so that who disagreed without noticing
  // notices now.
  [[gnu::always_inline]] Running enter(const Operation& operation, const Prepared& prepared) {
    return begin(operation, prepared, history_ = mixed(history_, prepared.tag), 0);
  }
  // The same on a GPU: with a tag of its own, as a graph that replays an operation has no such history, and
  // the place of its buffers.
  Running enterOnDevice(const Operation& operation, const Prepared& prepared, uint64_t tag, uint64_t place) {
    return begin(operation, prepared, tag, place);
  }
  // One without a number.
  Running enterUnnumbered(const Operation& operation) {
    const uint64_t place =
        flight_.begin(flightCallOf(operation, {}, onDevice_), 0, platform::ticks(), operation.count);
    return {&operation, 0, 0, place, false};
  }
  // What cannot be planned still counts, and is announced with a tag of its own: peers that could plan it
  // learn that this rank did not join them.
  Status refusePlan(const Operation& operation, Status status);

  // It has ended; what it ends with.
  [[gnu::always_inline]] Status conclude(const Running& running, Status status) {
    const uint64_t now = platform::ticks();
    flight_.end(running.recorded, status, now);
    if (running.watched) [[unlikely]]
      endWatched(now);
    if (!status.ok()) [[unlikely]] {
      return explain(running, status);
    }
    count(*running.operation);
    return kOkStatus;
  }
  // It was enqueued, and ends later: in the recorder it goes on.
  void enqueued(const Running& running) {
    if (running.watched) [[unlikely]]
      endWatched(platform::ticks());
    count(*running.operation);
  }
  void count(const Operation& operation) {
    ++counters_.operations;
    if (operation.collective != Collective::kWaitSignal) counters_.bytes += operation.bytes();
  }

  observe::FlightRecorder& flight() { return flight_; }
  Profile& profile() { return profile_; }
  Counters& counters() { return counters_; }

 private:
  [[gnu::always_inline]] Running begin(const Operation& operation, const Prepared& prepared, uint64_t tag,
                                       uint64_t place) {
    const uint64_t ticks = platform::ticks();
    Running running{&operation, ++sequence_, tag, 0, false};
    recordCall(prepared.recordedCall, {running.sequence, tag, ticks, place});
    running.recorded = flight_.begin(prepared.recorded, running.sequence, ticks, operation.count);
    if (operation.profiled.mask != 0) [[unlikely]] {
      running.watched = true;
      beginWatched(operation, prepared.plan, ticks);
    }
    return running;
  }
  void recordCall(const CallRecord& kind, const CallInstance& call) {
    if (onDevice_) return connections_.operationLog(self_.rank()).enter(kind, call);
    stretto::recordCall(*header_, kind, call);
  }
  // Why it failed: the communicator's reason, if that is known.
  Status explain(const Running& running, Status status);
  void beginWatched(const Operation& operation, const planner::Plan& plan, uint64_t ticks);
  void endWatched(uint64_t ticks);

  const Identity& self_;
  Health& health_;
  const Connections& connections_;
  const bool onDevice_;
  WindowHeader* header_ = nullptr;
  uint64_t sequence_ = 0;  // collectives so far
  uint64_t history_ = 0;   // their tags, mixed
  observe::FlightRecorder flight_;
  Counters counters_;
  Profile profile_;
};

}  // namespace stretto::communicator
