// Who waits for whom in the operations that the ranks of a communicator share, computed from what their
// flight recorders hold: a collective can go on when its last rank has entered it, so a rank that entered
// before has waited that long, and for that rank. Pure. watch.cpp is the user.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "observe/doctor_case.hpp"

namespace stretto::observe {

// Of one rank, in ticks of its host.
struct Activity {
  uint64_t window = 0;  // how long the recorder could be followed; 0: no operation was comparable
  uint64_t waited = 0;  // of that
  std::map<int, uint64_t> waitedFor;  // the same by the rank that came last
  uint64_t late = 0;                  // for how long the other ranks, added up, waited for this one
  std::vector<int> awaited;           // who has not entered the operation that it is in now
};

// By index of facts.members. Only what lies after `from` (0: all that is recorded) is counted. Waits are
// known between ranks of one host, in memory of the host: not in transfers between two ranks, and not of
// operations that were enqueued on a GPU, where entering takes no time.
std::vector<Activity> activityOf(const Case& facts, uint64_t from);

}  // namespace stretto::observe
