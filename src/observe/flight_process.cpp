#include "observe/flight_process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "platform/clock.hpp"
#include "platform/shared_memory.hpp"
#include "platform/small_file.hpp"

namespace stretto::observe {
namespace {

using Mapping = ProcessFlight::Mapping;

// From /proc/PID/stat: the state letter (R, S, D, T, t, Z, ...), 0 when there is no such process, and when it
// started, in clock ticks after boot. The name before them may hold brackets: the last one counts.
struct Stat {
  char letter = 0;
  uint64_t startTime = 0;
};
Stat statOf(os::ProcessId pid) {
  const std::string text = platform::readSmallFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= text.size()) return {};
  Stat stat;
  stat.letter = text[bracket + 2];
  std::istringstream fields(text.substr(bracket + 3));
  std::string skipped;
  constexpr int kBetween = 18;  // fields from the state to the start
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> stat.startTime;
  return stat;
}

Liveness livenessOfState(char letter) {
  switch (letter) {
    case 0:
    case 'Z':
    case 'X':
    case 'x':
      return Liveness::kGone;
    case 'T':
    case 't':
      return Liveness::kStopped;
    case 'R':
      return Liveness::kRunning;
    default:
      return Liveness::kSleeping;
  }
}

// The numbers of the process in our pid namespace and in those below, from /proc/PID/status.
std::vector<uint32_t> numbersOf(os::ProcessId pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("NSpid:", 0) != 0) continue;
    std::istringstream fields(line.substr(6));
    std::vector<uint32_t> numbers;
    for (uint32_t number = 0; fields >> number;) numbers.push_back(number);
    return numbers;
  }
  return {static_cast<uint32_t>(pid)};
}

bool isRecorder(const std::string& path) {
  static const std::string kMemory = std::string("/memfd:") + kFlightLabel + " (deleted)";
  if (path == kMemory) return true;
  std::string name = path;
  static const std::string kDeleted = " (deleted)";
  if (name.size() > kDeleted.size() && name.ends_with(kDeleted)) name.resize(name.size() - kDeleted.size());
  return name.ends_with(kFlightSuffix);
}

// One line of /proc/PID/maps: "start-end rights offset device inode   path".
std::optional<Mapping> parseMapping(const std::string& line) {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
  char device[16] = {};
  int path = 0;
  const int fields = sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*7s %" SCNx64 " %15s %" SCNu64 " %n",
                            &start, &end, &offset, device, &inode, &path);
  if (fields < 5 || path <= 0 || static_cast<size_t>(path) >= line.size()) return std::nullopt;
  Mapping mapping{start, line.substr(static_cast<size_t>(path)), {device, inode}};
  const bool whole = offset == 0 && end > start && end - start >= kFlightBytes;
  if (!whole || !isRecorder(mapping.path)) return std::nullopt;
  return mapping;
}

Result<std::vector<Mapping>> recordersOf(os::ProcessId pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  if (!file) {
    return fail(Code::kSystem, "cannot read /proc/%d/maps: run as the user of that process, or as root", pid);
  }
  std::vector<Mapping> found;
  std::set<std::pair<std::string, uint64_t>> seen;
  for (std::string line; std::getline(file, line);) {
    auto mapping = parseMapping(line);
    if (mapping && seen.insert(mapping->file).second) found.push_back(std::move(*mapping));
  }
  return found;
}

// A descriptor of the process that stands for the mapping's file. Opening it needs less privilege than
// reading the process's memory does, where only a parent may attach (Yama).
int openByDescriptor(os::ProcessId pid, const Mapping& mapping) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return -1;
  int opened = -1;
  while (const dirent* entry = opened < 0 ? readdir(entries) : nullptr) {
    const std::string path = directory + "/" + entry->d_name;
    char target[4096];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    struct stat facts {};
    if (length <= 0 || std::string(target, static_cast<size_t>(length)) != mapping.path) continue;
    if (stat(path.c_str(), &facts) != 0 || facts.st_ino != mapping.file.second) continue;
    opened = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  }
  closedir(entries);
  return opened;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd >= 0) close(fd);
}

bool copyFile(int descriptor, FlightBytes& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(descriptor, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) errno = ENODATA;
      return false;
    }
    done += static_cast<size_t>(got);
  }
  return true;
}

Result<FlightSnapshot> readStable(const FlightCopy& copy, int mostReads) {
  auto first = std::make_unique<FlightBytes>();
  auto second = std::make_unique<FlightBytes>();
  if (!copy(*first)) return failErrno("cannot read the flight recorder");
  Result<FlightSnapshot> result = Status{Code::kInternal};
  for (int i = 0; i < mostReads; ++i) {
    const uint64_t now = platform::ticks();
    if (!copy(*second)) return failErrno("cannot read the flight recorder");
    result = parseFlight(*first, *second);
    if (!result.ok()) return result;
    if (!result.value().isCopy) result.value().readTicks = now;
    if (result.value().unreadable == 0) break;
    std::swap(first, second);
  }
  return result;
}

Liveness livenessOf(os::ProcessId pid, uint64_t startTime) {
  const Stat stat = statOf(pid);
  return stat.startTime == startTime ? livenessOfState(stat.letter) : Liveness::kGone;
}

ProcessFlight::ProcessFlight(os::ProcessId pid, Mapping mapping)
    : pid_(pid),
      mapping_(std::move(mapping)),
      numbers_(numbersOf(pid)),
      file_(std::make_shared<Descriptor>(openByDescriptor(pid, mapping_))) {}

std::string ProcessFlight::name() const {
  return "process " + std::to_string(pid_) + ", " + mapping_.path;
}

Result<FlightSnapshot> ProcessFlight::read(int mostReads) const {
  const auto* remote = reinterpret_cast<const void*>(static_cast<uintptr_t>(mapping_.start));
  const auto copy = [&](FlightBytes& to) {
    return file_->fd >= 0 ? copyFile(file_->fd, to)
                          : platform::readProcess(pid_, to.data(), remote, to.size());
  };
  auto snapshot = readStable(copy, mostReads);
  if (!snapshot.ok()) {
    if (snapshot.status().code != Code::kSystem) return snapshot;
    return failErrno("cannot read the memory of process %d: run as its user, or as root", pid_);
  }
  snapshot.value().source = "process " + std::to_string(pid_);
  snapshot.value().liveness = livenessOf(pid_, snapshot.value().startTime);
  return snapshot;
}

bool ProcessFlight::isInherited(const FlightSnapshot& snapshot) const {
  return std::find(numbers_.begin(), numbers_.end(), snapshot.pid) == numbers_.end();
}

Result<std::vector<ProcessFlight>> flightsOf(os::ProcessId pid) {
  const char letter = pid > 0 ? statOf(pid).letter : '\0';
  if (livenessOfState(letter) == Liveness::kGone) {
    return fail(Code::kInvalidArgument,
                "process %d %s; `stretto doctor` without a process tells what ended last", pid,
                letter == 0 ? "does not exist" : "has ended (a zombie)");
  }
  auto mappings = recordersOf(pid);
  if (!mappings.ok()) return mappings.status();
  std::vector<ProcessFlight> flights;
  for (Mapping& mapping : mappings.value()) flights.emplace_back(pid, std::move(mapping));
  return flights;
}

}  // namespace stretto::observe
