// Where flight recorders are found: in processes, and in a directory.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
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
  return livenessOf(static_cast<os::ProcessId>(snapshot.pid), snapshot.startTime);
}

bool sameBoot(const FlightSnapshot& snapshot, const ProcessIdentity& ours) {
  return memcmp(snapshot.bootId, ours.bootId, sizeof ours.bootId) == 0;
}

// A pipe must not make us wait, nor a link lead us away.
int openFlight(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
}

template <typename T>
bool readAt(const Descriptor& file, size_t offset, T& to) {
  return pread(file.fd, &to, sizeof to, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof to);
}

}  // namespace

Result<FlightSnapshot> readFlightFile(const std::string& path, const ProcessIdentity& ours) {
  const Descriptor file(openFlight(path));
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

std::optional<FlightSnapshot> readFlightHead(const std::string& path, const ProcessIdentity& ours) {
  const Descriptor file(openFlight(path));
  FlightHeader header;
  FlightSlot last;
  if (!readAt(file, 0, header) ||
      !readAt(file, kFlightHeaderBytes + header.begun % kFlightRecords * sizeof last, last))
    return std::nullopt;
  auto snapshot = parseFlightHead(header, last);
  if (!snapshot) return std::nullopt;
  snapshot->source = path;
  snapshot->liveness = livenessOfFile(*snapshot, ours);
  return snapshot;
}

bool isFolderOfOurs(const std::string& folder) {
  struct stat facts {};
  return lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() &&
         (facts.st_mode & 077) == 0;
}

Result<std::vector<std::string>> flightFilesOf(const std::string& folder, Whose whose) {
  const int follow = whose == Whose::kOurs ? O_NOFOLLOW : 0;
  const int opened = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY | follow);
  DIR* entries = opened < 0 ? nullptr : fdopendir(opened);
  if (entries == nullptr) {
    const Status status = failErrno("cannot open the directory %s", folder.c_str());
    if (opened >= 0) close(opened);
    return status;
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) {
    if (std::string(entry->d_name).ends_with(kFlightSuffix)) names.emplace_back(entry->d_name);
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

Result<FlightReading> readProcess(os::ProcessId pid) {
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

namespace {

Result<FlightReading> readFiles(const std::string& path, const std::vector<std::string>& names) {
  const auto ours = currentIdentity();
  if (!ours.ok()) return ours.status();
  FlightReading reading;
  const size_t count = std::min(names.size(), kMostFiles);
  for (size_t i = 0; i < count; ++i) {
    const std::string file = path + "/" + names[i];
    auto snapshot = readFlightFile(file, ours.value());
    if (snapshot.ok()) {
      reading.snapshots.push_back(std::move(snapshot.value()));
    } else {
      reading.problems.push_back(file + ": " + lastError());
    }
  }
  if (count < names.size()) {
    reading.problems.push_back(std::to_string(names.size() - count) + " more files were not read");
  }
  return reading;
}

}  // namespace

Result<FlightReading> readDirectory(const std::string& path) {
  const auto names = flightFilesOf(path, Whose::kAnybodys);
  if (!names.ok()) return names.status();
  if (!names.value().empty()) return readFiles(path, names.value());
  return fail(Code::kInvalidUsage,
              "no flight recorder (*%s) in %s: was it the STRETTO_FLIGHT_DIR of the job, and has the job "
              "begun?",
              kFlightSuffix, path.c_str());
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
  const bool exists = access(folder.c_str(), F_OK) == 0;
  if (exists && !isFolderOfOurs(folder))
    return fail(Code::kInvalidUsage, "%s is not a folder of this user alone", folder.c_str());
  const auto names = flightFilesOf(folder, Whose::kOurs);
  if (!names.ok() || names.value().empty()) {
    return fail(Code::kInvalidUsage,
                "nothing is left of a job in %s: all of this user have ended in peace, or left their flight "
                "recorders in a STRETTO_FLIGHT_DIR",
                folder.c_str());
  }
  auto all = readFiles(folder, names.value());
  if (!all.ok() || all.value().snapshots.empty()) return all;
  std::vector<FlightSnapshot>& flights = all.value().snapshots;
  const auto last = std::max_element(flights.begin(), flights.end(), [](const auto& a, const auto& b) {
    return a.latestRealtime() < b.latestRealtime();
  });
  const auto communicators = communicatorsOfJobs(flights, {*last});
  const size_t others = std::erase_if(
      flights, [&](const FlightSnapshot& flight) { return !communicators.contains(flight.communicator); });
  if (others > 0)
    all.value().problems.push_back(std::to_string(others) + " recorders of other jobs in " + folder);
  return all;
}

}  // namespace stretto::observe
