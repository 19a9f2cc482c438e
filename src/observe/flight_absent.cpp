// Windows: a rank keeps its flight recorder in its own memory, or in a file of STRETTO_FLIGHT_DIR; nobody
// here reads the recorders of other processes, and no files are kept unasked.
#include <cerrno>

#include "base/parameters.hpp"
#include "observe/flight_folder.hpp"
#include "observe/flight_process.hpp"
#include "observe/flight_reader.hpp"

namespace stretto::observe {
namespace {

Status refuse(const char* what) {
  return fail(Code::kInvalidUsage,
              "%s: flight recorders are not read on Windows; copy the files of "
              "STRETTO_FLIGHT_DIR to a Linux machine and name their folder there",
              what);
}

}  // namespace

FlightFolder flightFolder() {
  const std::string text = parameters::kFlightDirectory.text();
  return {text == "none" ? "" : text, true};
}
std::string defaultFlightFolder() {
  return {};
}
Status makeRoomForFlight(const std::string& folder, bool) {
  return refuse(folder.c_str());
}
bool copyFlights(const std::string&, uint64_t, const std::string&) {
  errno = ENOSYS;
  return false;
}

Result<FlightReading> readProcess(os::ProcessId) {
  return refuse("a process");
}
Result<FlightReading> readDirectory(const std::string& path) {
  return refuse(path.c_str());
}
Result<FlightReading> readPaths(const std::string& paths) {
  return refuse(paths.c_str());
}
Result<FlightReading> readLastJob(const std::string& folder) {
  return refuse(folder.c_str());
}

Descriptor::~Descriptor() = default;
Result<FlightSnapshot> ProcessFlight::read(int) const {
  return refuse("a process");
}
bool ProcessFlight::isInherited(const FlightSnapshot&) const {
  return false;
}
std::string ProcessFlight::name() const {
  return "process " + std::to_string(pid_);
}
Result<std::vector<ProcessFlight>> flightsOf(os::ProcessId) {
  return refuse("a process");
}

}  // namespace stretto::observe
