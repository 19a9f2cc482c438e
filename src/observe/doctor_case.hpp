// One communicator as its ranks' recorders show it: who is where, for how long. doctor.cpp draws conclusions
// from it; doctor_report.cpp writes it down. Only doctor*.cpp includes this.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "observe/flight_reader.hpp"

namespace stretto::observe {

struct Member {
  const FlightSnapshot* flight = nullptr;
  uint64_t now = 0;    // on the counter of its host: when it was read, or the last thing known of that host
  bool exact = false;  // `now` is when it was read, and it was alive then

  int rank() const { return flight->rank; }
  bool gone() const { return flight->liveness == Liveness::kGone; }
  bool finalized() const { return flight->state == FlightState::kFinalized; }
  // Gone without having said goodbye.
  bool lost() const { return gone() && flight->state == FlightState::kAlive; }
  // Its latest operation, or null.
  const FlightOperation* last() const {
    return flight->operations.empty() ? nullptr : &flight->operations.back();
  }
  // The collective of that number, or null when it was not entered or was too long ago.
  const FlightOperation* find(uint64_t sequence) const;
  // The highest collective entered; 0 if none.
  uint64_t entered() const;
  // Seconds from `ticks` to `now`; 0 for what lies ahead of it.
  double secondsSince(uint64_t ticks) const;
  // "12.3 s", or "at least 12.3 s" where nobody could look at the time.
  std::string sayAge(uint64_t ticks) const;
};

struct Case {
  std::vector<Member> members;  // by rank, one each
  std::vector<int> missing;     // ranks of which no recorder was read
  bool allGone = false;
  bool isCopy = false;  // of a moment at which somebody had waited for longer than he wanted

  // Nobody has to be waited for any longer to say that he is late.
  bool isPast() const { return allGone || isCopy; }

  const Member* member(int rank) const;
};

// The members of one communicator; of two recorders of one rank the younger counts. `members` is not empty,
// and all have the same communicator and number of ranks.
Case makeCase(std::vector<const FlightSnapshot*> flights);

// "12.3 s ago it finished #7 …", "is in #8 … since 3 s", "has begun no operation yet", "has finalized".
std::string sayDoing(const Member& member);

}  // namespace stretto::observe
