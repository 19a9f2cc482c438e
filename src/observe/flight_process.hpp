// The flight recorders of one process: found once in its mappings, then read any number of times. What
// readers of processes and of files share is here too. Only flight_*.cpp and watch.hpp include this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os.hpp"
#include "base/status.hpp"
#include "observe/flight_format.hpp"
#include "observe/flight_reader.hpp"
#include "platform/identity.hpp"

namespace stretto::observe {

using FlightBytes = std::array<std::byte, kFlightBytes>;
// Copies the whole recorder as it is now; false with errno when that fails.
using FlightCopy = std::function<bool(FlightBytes&)>;

// A diagnosis wants every record: it reads again, so often at most, while any is changing.
inline constexpr int kMostReads = 6;

// Owns a descriptor, or none (negative).
struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

bool copyFile(int descriptor, FlightBytes& bytes);

// Whether it is a folder, and no link to one, that is this user's and that nobody else can put anything into.
bool isFolderOfOurs(const std::string& folder);
// The names of the *.flight files in a folder, sorted. A link to a folder is followed only if it is
// anybody's.
enum class Whose { kAnybodys, kOurs };
Result<std::vector<std::string>> flightFilesOf(const std::string& folder, Whose whose);
// `ours`: of this process, to tell whether the recorder's would be visible from here.
Result<FlightSnapshot> readFlightFile(const std::string& path, const ProcessIdentity& ours);
// No more than parseFlightHead tells, at the cost of two short reads. Says nothing about what cannot be read.
std::optional<FlightSnapshot> readFlightHead(const std::string& path, const ProcessIdentity& ours);

// Reads until two copies in a row agree on every record, or `mostReads` times after the first: a rank that is
// working changes one all the time.
Result<FlightSnapshot> readStable(const FlightCopy& copy, int mostReads);

// Whether the process runs, sleeps, ...; kGone where there is none of that number that started then (in clock
// ticks after boot).
Liveness livenessOf(os::ProcessId pid, uint64_t startTime);

class ProcessFlight {
 public:
  // `start` and `path` are those of the mapping, `file` its device and inode.
  struct Mapping {
    uint64_t start = 0;
    std::string path;
    std::pair<std::string, uint64_t> file;
  };
  ProcessFlight(os::ProcessId pid, Mapping mapping);

  // Reads it as it is now. Where a descriptor could be had this works after the process has ended too, and
  // then tells its last state.
  Result<FlightSnapshot> read(int mostReads) const;
  // A forked child still maps its parent's recorders.
  bool isInherited(const FlightSnapshot& snapshot) const;
  os::ProcessId pid() const { return pid_; }
  const Mapping& mapping() const { return mapping_; }
  // "process 123, /memfd:..."
  std::string name() const;

 private:
  os::ProcessId pid_;
  Mapping mapping_;
  std::vector<uint32_t> numbers_;  // of the process, in our pid namespace and in those below
  std::shared_ptr<Descriptor> file_;
};

// Those of a process. kInvalidArgument when there is no such process, kSystem when the kernel does not let us
// look.
Result<std::vector<ProcessFlight>> flightsOf(os::ProcessId pid);

}  // namespace stretto::observe
