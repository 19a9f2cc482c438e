// Reads flight recorders from outside: of a process that lives, hangs, spins or is stopped, or from the files
// that dead ones left. Nothing that is read is trusted: every length, number and text is checked, and what is
// not what it should be is left out and counted, or refused with a reason. Nothing here stops, signals or
// changes the process that is looked at. doctor.hpp says what it all means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "base/os.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "observe/flight.hpp"

namespace stretto::observe {

struct FlightOperation {
  uint64_t place = 0;     // number among all operations of this rank, from 1
  uint64_t sequence = 0;  // number of the collective; 0: point-to-point
  uint64_t startTicks = 0;
  uint64_t endTicks = 0;  // 0 while running
  uint64_t count = 0;
  Collective function = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  algorithms::Algorithm algorithm = algorithms::Algorithm::kLocal;
  algorithms::Protocol protocol = algorithms::Protocol::kSimple;
  OperationState state = OperationState::kRunning;
  Code code = Code::kOk;
  int32_t root = -1;
  int32_t peer = -1;
  int32_t failedPeer = -1;
  int32_t awaited = -1;   // the peer it cannot go on without
  bool enqueued = false;  // on a GPU; kRunning means no more than that its end was not noticed yet
};

// What is known of a process besides what it says of itself.
enum class Liveness : uint8_t {
  kUnknown,  // of another host, another boot or another pid namespace
  kRunning,
  kSleeping,
  kStopped,  // by a signal or a debugger
  kGone,     // or a zombie, or its pid belongs to somebody else now
};
const char* nameOf(Liveness liveness);

struct FlightSnapshot {
  std::string source;  // where it was read: a path, or "process 123"
  uint64_t communicator = 0;
  int rank = 0;
  int ranks = 1;
  uint32_t pid = 0;
  uint64_t startTime = 0;
  uint64_t pidNamespace = 0;
  uint8_t bootId[16] = {};
  double tickRate = 1e9;
  uint64_t anchorRealtime = 0;
  uint64_t anchorTicks = 0;
  std::string host;
  std::string library;
  FlightState state = FlightState::kAlive;
  std::string error;  // the communicator's last error; empty if none
  uint64_t errorTicks = 0;
  uint64_t endedTicks = 0;  // when the communicator ended; 0 before
  uint64_t begun = 0;
  uint64_t bytes = 0;                       // of the operations begun: count x element size
  uint32_t unreadable = 0;                  // records that were changing or make no sense
  std::vector<FlightOperation> operations;  // oldest first
  Liveness liveness = Liveness::kUnknown;
  // When it was read, on the writer's counter; 0 when that is not ours. Of a copy: when that was made.
  uint64_t readTicks = 0;
  bool isCopy = false;  // as it was at a moment that somebody chose (flight_folder.hpp)

  // The last thing that its rank is known to have done: ticks of its host, and nanoseconds since 1970.
  uint64_t latestTicks() const;
  uint64_t latestRealtime() const;
};

// Two copies of one recorder, the second read after the first: what differs between them was changing.
// kInvalidUsage with the reason when it is no recorder, or one of another version.
Result<FlightSnapshot> parseFlight(std::span<const std::byte> first, std::span<const std::byte> second);
// What a header says, and the record of the operation that began last; nothing where that is no header.
std::optional<FlightSnapshot> parseFlightHead(const FlightHeader& header, const FlightSlot& last);
// The communicators of the jobs of `members`: theirs, and those of whoever shares a communicator or a process
// with one that counts already.
std::set<uint64_t> communicatorsOfJobs(const std::vector<FlightSnapshot>& flights,
                                       const std::vector<FlightSnapshot>& members);

struct FlightReading {
  std::vector<FlightSnapshot> snapshots;
  std::vector<std::string> problems;  // sentences about what could not be read

  void add(FlightReading&& more);
};
// All recorders of one process. kInvalidArgument when there is no such process, kInvalidUsage when it has no
// recorder, kSystem when the kernel does not let us look.
Result<FlightReading> readProcess(os::ProcessId pid);
// All *.flight files of a directory.
Result<FlightReading> readDirectory(const std::string& path);
// Recorders and directories of them, one a line.
Result<FlightReading> readPaths(const std::string& paths);
// Of the recorders in the folder those of the job that did something last: of its last process, and of
// whoever shares a communicator with one that counts already. How many others there are is one of the
// problems.
Result<FlightReading> readLastJob(const std::string& folder);

}  // namespace stretto::observe
