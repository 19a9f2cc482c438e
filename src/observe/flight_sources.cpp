// Where flight recorders are found: in the mappings of a process, and in a directory.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "observe/flight_format.hpp"
#include "observe/flight_reader.hpp"
#include "platform/clock.hpp"
#include "platform/identity.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::observe {
namespace {

constexpr int kMostReads = 6;
constexpr size_t kMostFiles = 4096;

using Bytes = std::array<std::byte, kFlightBytes>;
// Copies the whole recorder as it is now; false with errno when that fails.
using Copy = std::function<bool(Bytes&)>;

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

bool copyFile(int descriptor, Bytes& bytes) {
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

// Reads until two copies in a row agree on every record, or often enough: a rank that is working changes one
// all the time.
Result<FlightSnapshot> readStable(const Copy& copy) {
  auto first = std::make_unique<Bytes>();
  auto second = std::make_unique<Bytes>();
  if (!copy(*first)) return failErrno("cannot read the flight recorder");
  Result<FlightSnapshot> result = Status{Code::kInternal};
  for (int i = 0; i < kMostReads; ++i) {
    const uint64_t now = platform::ticks();
    if (!copy(*second)) return failErrno("cannot read the flight recorder");
    result = parseFlight(*first, *second);
    if (!result.ok()) return result;
    result.value().readTicks = now;
    if (result.value().unreadable == 0) break;
    std::swap(first, second);
  }
  return result;
}

// The process's state letter (R, S, D, T, t, Z, ...); 0 when there is no such process. The name before it may
// hold brackets: the last one counts.
char stateLetter(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t bracket = text.rfind(')');
  return bracket == std::string::npos || bracket + 2 >= text.size() ? 0 : text[bracket + 2];
}

Liveness livenessOf(char letter) {
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
std::vector<uint32_t> numbersOf(pid_t pid) {
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

struct Mapping {
  uint64_t start = 0;
  std::string path;
  std::pair<std::string, uint64_t> file;  // device and inode
};

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

Result<std::vector<Mapping>> recordersOf(pid_t pid) {
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
int openByDescriptor(pid_t pid, const Mapping& mapping) {
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

Result<FlightSnapshot> readMapping(pid_t pid, const Mapping& mapping) {
  const auto* remote = reinterpret_cast<const void*>(static_cast<uintptr_t>(mapping.start));
  auto probe = std::make_unique<Bytes>();
  if (platform::readProcess(pid, probe->data(), remote, probe->size())) {
    return readStable([&](Bytes& to) { return platform::readProcess(pid, to.data(), remote, to.size()); });
  }
  const int reason = errno;
  const Descriptor file(openByDescriptor(pid, mapping));
  if (file.fd < 0) {
    errno = reason;
    return failErrno("cannot read the memory of process %d: run as its user, or as root", pid);
  }
  return readStable([&](Bytes& to) { return copyFile(file.fd, to); });
}

// Of a recorder that was found as a file. Only a process that we would see if it were there can be gone.
Liveness livenessOf(const FlightSnapshot& snapshot, const ProcessIdentity& ours) {
  static constexpr uint8_t kNoBoot[16] = {};
  const bool visible = memcmp(snapshot.bootId, ours.bootId, sizeof ours.bootId) == 0 &&
                       memcmp(snapshot.bootId, kNoBoot, sizeof kNoBoot) != 0 &&
                       snapshot.pidNamespace == ours.pidNamespace;
  if (!visible) return Liveness::kUnknown;
  if (startTimeOf(snapshot.pid) != snapshot.startTime) return Liveness::kGone;
  return livenessOf(stateLetter(static_cast<pid_t>(snapshot.pid)));
}

bool sameBoot(const FlightSnapshot& snapshot, const ProcessIdentity& ours) {
  return memcmp(snapshot.bootId, ours.bootId, sizeof ours.bootId) == 0;
}

Result<FlightSnapshot> readFile(const std::string& path, const ProcessIdentity& ours) {
  // A pipe must not make us wait, nor a link lead us away.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (file.fd < 0 || fstat(file.fd, &facts) != 0) return failErrno("cannot open it");
  if (!S_ISREG(facts.st_mode)) return fail(Code::kInvalidUsage, "not a regular file");
  if (facts.st_size != static_cast<off_t>(kFlightBytes)) {
    return fail(Code::kInvalidUsage, "%lld bytes long, and a flight recorder has %zu",
                static_cast<long long>(facts.st_size), kFlightBytes);
  }
  auto snapshot = readStable([&](Bytes& to) { return copyFile(file.fd, to); });
  if (!snapshot.ok()) return snapshot;
  snapshot.value().source = path;
  snapshot.value().liveness = livenessOf(snapshot.value(), ours);
  if (!sameBoot(snapshot.value(), ours)) snapshot.value().readTicks = 0;
  return snapshot;
}

Result<std::vector<std::string>> flightFilesOf(const std::string& path) {
  DIR* entries = opendir(path.c_str());
  if (entries == nullptr) return failErrno("cannot open the directory %s", path.c_str());
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) {
    if (std::string(entry->d_name).ends_with(kFlightSuffix)) names.emplace_back(entry->d_name);
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<FlightReading> readProcess(pid_t pid) {
  const char letter = pid > 0 ? stateLetter(pid) : '\0';
  if (livenessOf(letter) == Liveness::kGone) {
    return fail(Code::kInvalidArgument,
                "process %d %s; what it did last is only in STRETTO_FLIGHT_DIR, if that was set", pid,
                letter == 0 ? "does not exist" : "has ended (a zombie)");
  }
  const auto mappings = recordersOf(pid);
  if (!mappings.ok()) return mappings.status();
  const std::vector<uint32_t> numbers = numbersOf(pid);
  FlightReading reading;
  for (const Mapping& mapping : mappings.value()) {
    auto snapshot = readMapping(pid, mapping);
    const std::string source = "process " + std::to_string(pid);
    if (!snapshot.ok()) {
      reading.problems.push_back(source + ", " + mapping.path + ": " + lastError());
      continue;
    }
    // A forked child still maps its parent's recorders.
    if (std::find(numbers.begin(), numbers.end(), snapshot.value().pid) == numbers.end()) continue;
    snapshot.value().source = source;
    snapshot.value().liveness = livenessOf(letter);
    reading.snapshots.push_back(std::move(snapshot.value()));
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
                "no flight recorder (*%s) in %s: was STRETTO_FLIGHT_DIR set for the job?", kFlightSuffix,
                path.c_str());
  }
  const auto ours = currentIdentity();
  if (!ours.ok()) return ours.status();
  FlightReading reading;
  const size_t count = std::min(names.value().size(), kMostFiles);
  for (size_t i = 0; i < count; ++i) {
    const std::string file = path + "/" + names.value()[i];
    auto snapshot = readFile(file, ours.value());
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

}  // namespace stretto::observe
