// Looks at the flight recorders of running processes again and again, as cheaply as it can: what is found is
// kept open, and each reading says in a few hundred bytes a rank what has changed. `stretto top` is the user,
// through strettoWatchOpen.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/os.hpp"
#include "base/status.hpp"
#include "observe/flight_process.hpp"

namespace stretto::observe {

class Watch {
 public:
  // kInvalidArgument, kSystem or kInvalidUsage, with a sentence, when no recorder of any of them can be read.
  static Result<Watch> open(const std::vector<os::ProcessId>& pids);

  // What the recorders say now, as the JSON "stretto.watch/1" (docs/decisions/0005-observability.md). Looks
  // for communicators that are new every now and then. A process that has ended stays in it, as it was last.
  std::string read();

 private:
  void look();
  bool isKnown(const ProcessFlight& flight) const;
  FlightReading readAll();

  std::vector<os::ProcessId> pids_;
  std::vector<ProcessFlight> flights_;
  std::vector<std::string> problems_;
  uint64_t looked_ = 0;  // ticks
  uint64_t read_ = 0;    // ticks of the reading before
};

}  // namespace stretto::observe
