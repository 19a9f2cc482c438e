// Where flight recorders are found: in processes, and in a directory.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "observe/flight_format.hpp"
#include "observe/flight_process.hpp"
#include "observe/flight_reader.hpp"
#include "platform/identity.hpp"

namespace stretto::observe {
namespace {

constexpr size_t kMostFiles = 4096;

// Of a recorder that was found as a file. Only a process that we would see if it were there can be gone.
Liveness livenessOfFile(const FlightSnapshot& snapshot, const ProcessIdentity& ours) {
  static constexpr uint8_t kNoBoot[16] = {};
  const bool visible = memcmp(snapshot.bootId, ours.bootId, sizeof ours.bootId) == 0 &&
                       memcmp(snapshot.bootId, kNoBoot, sizeof kNoBoot) != 0 &&
                       snapshot.pidNamespace == ours.pidNamespace;
  if (!visible) return Liveness::kUnknown;
  return livenessOf(static_cast<pid_t>(snapshot.pid), snapshot.startTime);
}

bool sameBoot(const FlightSnapshot& snapshot, const ProcessIdentity& ours) {
  return memcmp(snapshot.bootId, ours.bootId, sizeof ours.bootId) == 0;
}

}  // namespace

Result<FlightSnapshot> readFlightFile(const std::string& path, const ProcessIdentity& ours) {
  // A pipe must not make us wait, nor a link lead us away.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (file.fd < 0 || fstat(file.fd, &facts) != 0) return failErrno("cannot open it");
  if (!S_ISREG(facts.st_mode)) return fail(Code::kInvalidUsage, "not a regular file");
  if (facts.st_size != static_cast<off_t>(kFlightBytes)) {
    return fail(Code::kInvalidUsage, "%lld bytes long, and a flight recorder has %zu",
                static_cast<long long>(facts.st_size), kFlightBytes);
  }
  auto snapshot = readStable([&](FlightBytes& to) { return copyFile(file.fd, to); }, kMostReads);
  if (!snapshot.ok()) return snapshot;
  snapshot.value().source = path;
  if (snapshot.value().isCopy) return snapshot;
  snapshot.value().liveness = livenessOfFile(snapshot.value(), ours);
  if (!sameBoot(snapshot.value(), ours)) snapshot.value().readTicks = 0;
  return snapshot;
}

Result<std::vector<std::string>> flightFilesOf(const std::string& folder) {
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return failErrno("cannot open the directory %s", folder.c_str());
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) {
    if (std::string(entry->d_name).ends_with(kFlightSuffix)) names.emplace_back(entry->d_name);
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

Result<FlightReading> readProcess(pid_t pid) {
  const auto flights = flightsOf(pid);
  if (!flights.ok()) return flights.status();
  FlightReading reading;
  for (const ProcessFlight& flight : flights.value()) {
    auto snapshot = flight.read(kMostReads);
    if (!snapshot.ok()) {
      reading.problems.push_back(flight.name() + ": " + lastError());
    } else if (!flight.isInherited(snapshot.value())) {
      reading.snapshots.push_back(std::move(snapshot.value()));
    }
  }
  if (reading.snapshots.empty() && reading.problems.empty()) {
    return fail(
        Code::kInvalidUsage,
        "process %d has no flight recorder: it has no communicator of Stretto (or not yet, or no more)", pid);
  }
  return reading;
}

Result<FlightReading> readDirectory(const std::string& path) {
  const auto names = flightFilesOf(path);
  if (!names.ok()) return names.status();
  if (names.value().empty()) {
    return fail(Code::kInvalidUsage,
                "no flight recorder (*%s) in %s: was it the STRETTO_FLIGHT_DIR of the job, and has the job "
                "begun?",
                kFlightSuffix, path.c_str());
  }
  const auto ours = currentIdentity();
  if (!ours.ok()) return ours.status();
  FlightReading reading;
  const size_t count = std::min(names.value().size(), kMostFiles);
  for (size_t i = 0; i < count; ++i) {
    const std::string file = path + "/" + names.value()[i];
    auto snapshot = readFlightFile(file, ours.value());
    if (snapshot.ok()) {
      reading.snapshots.push_back(std::move(snapshot.value()));
    } else {
      reading.problems.push_back(file + ": " + lastError());
    }
  }
  if (count < names.value().size()) {
    reading.problems.push_back(std::to_string(names.value().size() - count) + " more files were not read");
  }
  return reading;
}

Result<FlightReading> readPaths(const std::string& paths) {
  const auto ours = currentIdentity();
  if (!ours.ok()) return ours.status();
  FlightReading all;
  std::istringstream lines(paths);
  for (std::string path; std::getline(lines, path);) {
    struct stat facts {};
    if (stat(path.c_str(), &facts) != 0) return failErrno("cannot look at %s", path.c_str());
    if (S_ISDIR(facts.st_mode)) {
      auto reading = readDirectory(path);
      if (!reading.ok()) return reading;
      all.add(std::move(reading.value()));
      continue;
    }
    auto snapshot = readFlightFile(path, ours.value());
    if (snapshot.ok()) {
      all.snapshots.push_back(std::move(snapshot.value()));
    } else {
      all.problems.push_back(path + ": " + lastError());
    }
  }
  return all;
}

Result<FlightReading> readLastJob(const std::string& folder) {
  const auto names = flightFilesOf(folder);
  if (!names.ok() || names.value().empty()) {
    return fail(Code::kInvalidUsage,
                "nothing is left of a job in %s: all of this user have ended in peace, or left their flight "
                "recorders in a STRETTO_FLIGHT_DIR",
                folder.c_str());
  }
  auto all = readDirectory(folder);
  if (!all.ok() || all.value().snapshots.empty()) return all;
  std::vector<FlightSnapshot>& flights = all.value().snapshots;
  std::set<uint64_t> communicators;
  std::set<std::pair<uint64_t, uint64_t>> processes;
  const auto add = [&](const FlightSnapshot& flight) {
    communicators.insert(flight.communicator);
    processes.insert({flight.pid, flight.startTime});
  };
  add(*std::max_element(flights.begin(), flights.end(), [](const auto& a, const auto& b) {
    return a.latestRealtime() < b.latestRealtime();
  }));
  for (size_t known = 0; known != communicators.size() + processes.size();) {
    known = communicators.size() + processes.size();
    for (const FlightSnapshot& flight : flights) {
      if (communicators.contains(flight.communicator) || processes.contains({flight.pid, flight.startTime}))
        add(flight);
    }
  }
  const size_t others = std::erase_if(
      flights, [&](const FlightSnapshot& flight) { return !communicators.contains(flight.communicator); });
  if (others > 0)
    all.value().problems.push_back(std::to_string(others) + " recorders of other jobs in " + folder);
  return all;
}

}  // namespace stretto::observe
