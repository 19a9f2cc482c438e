// What flight recorders mean: which rank holds the others up, who died, where ranks disagree. Pure: snapshots
// in, sentences and JSON out. The command line and the C API are its users.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/os.hpp"
#include "observe/flight_reader.hpp"

namespace stretto::observe {

// Of one communicator; the worst comes last.
enum class Verdict : uint8_t {
  kFinished,  // all ranks have finalized it
  kIdle,      // no rank is in an operation
  kWorking,   // ranks are in operations, none for long
  kLeft,      // a process is gone that had not finalized, between operations, and no rank misses it
  kWaiting,   // a rank has been in one operation for longer than kPatienceSeconds
  kFailed,    // an operation failed, or a rank aborted
  kDisagree,  // ranks made different calls
  kDied,      // a process is gone that had not finalized, in an operation, or others miss it
};
const char* nameOf(Verdict verdict);
inline constexpr double kPatienceSeconds = 1.0;

struct CommunicatorDiagnosis {
  uint64_t communicator = 0;
  int ranks = 0;
  Verdict verdict = Verdict::kIdle;
  std::vector<int> suspects;  // ranks to look at first
  std::vector<std::string> sentences;
  std::vector<const FlightSnapshot*> members;  // by rank; they belong to the caller
};

struct Diagnosis {
  Verdict verdict = Verdict::kFinished;  // the worst
  std::vector<CommunicatorDiagnosis> communicators;
  std::string text;  // for people; lines
  std::string json;  // schema stretto.doctor/1: docs/decisions/0005-observability.md
};

// `reading` must outlive the result.
Diagnosis diagnose(const FlightReading& reading);
// The same without `text` and `json`, which take longer to write than all the rest.
Diagnosis examine(const FlightReading& reading);

// What to look at, as users write it: "123,124" (pids), recorders or directories of them, one a line, or ""
// for the job of which something is in the default folder (flight_folder.hpp) last.
Result<FlightReading> readTarget(const std::string& target);
// "123,124"; kInvalidArgument for anything else.
Result<std::vector<os::ProcessId>> parsePids(const std::string& target);

}  // namespace stretto::observe
