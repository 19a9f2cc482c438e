// Where flight recorders lie as files, which outlive their processes whatever way these end: a fatal signal,
// the out-of-memory killer, abort(). flight.cpp makes the files here, flight_sources.cpp reads them.
//
// STRETTO_FLIGHT_DIR decides. A folder that it names belongs to the user: every recorder stays there, and
// what does not fit there is an error. Where it is not set, the folder is this user's in /dev/shm, which
// costs an operation what memory without a name costs. A recorder stays there only if its communicator did
// not end in peace, and 16 MB of them at most stay, or a sixteenth of the file system if that is less; where
// no file can be had, the recorder is memory without a name. "none" asks for that.
#pragma once

#include <string>

#include "base/status.hpp"

namespace stretto::observe {

struct FlightFolder {
  std::string path;     // empty: none
  bool isUsers = true;  // all files stay
};
// As STRETTO_FLIGHT_DIR says.
FlightFolder flightFolder();
// Where recorders of this user lie if the variable does not say.
std::string defaultFlightFolder();

// Makes a folder that is not the user's, if need be, and room in it for one more recorder. When it is full,
// or `noSpace` says that its file system is, those of the recorders that may go (docs/flight-recorder.md) go,
// the longest unwritten first, down to half of what may lie there. kSystem: nothing can be made there.
Status makeRoomForFlight(const std::string& folder, bool noSpace);

// Copies the recorders in `folder` of the ranks of `communicator`, as they are now, into `to`, which must not
// exist. False with errno set.
bool copyFlights(const std::string& folder, uint64_t communicator, const std::string& to);

}  // namespace stretto::observe
