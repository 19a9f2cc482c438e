// What the flight recorder of this process says of a rank's operations.
#pragma once

#include <unistd.h>

#include <string>

#include "harness/ranks.hpp"
#include "observe/flight_reader.hpp"

namespace stretto::testing {

// Oldest first: "d" is done, "r" runs.
inline std::string statesOf(const Member& member) {
  ncclResult_t later = ncclSuccess;  // asking looks at what is done
  member.expect(ncclCommGetAsyncError(member.comm, &later), "ncclCommGetAsyncError");
  const auto reading = observe::readProcess(getpid());
  std::string states;
  if (!reading.ok()) return lastError();
  for (const observe::FlightSnapshot& snapshot : reading.value().snapshots) {
    if (snapshot.rank != member.rank) continue;
    for (const observe::FlightOperation& one : snapshot.operations)
      states += one.state == observe::OperationState::kDone ? 'd' : 'r';
  }
  return states;
}
inline void expectStates(const Member& member, const char* wanted) {
  if (eventually(5, [&] { return statesOf(member) == wanted; })) return;
  member.complain("operations are %s, not %s", statesOf(member).c_str(), wanted);
}

}  // namespace stretto::testing
