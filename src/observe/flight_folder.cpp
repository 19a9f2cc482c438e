#include "observe/flight_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "observe/flight_format.hpp"
#include "observe/flight_process.hpp"
#include "observe/flight_reader.hpp"
#include "platform/clock.hpp"
#include "platform/identity.hpp"

namespace stretto::observe {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostOfFileSystem = 16;  // one part in so many
constexpr uint64_t kSecond = 1000000000;
// What a process that lives, or may live, wrote so lately stays; and of its communicators that have ended so
// many stay whatever their age.
constexpr uint64_t kFresh = 60 * kSecond;
constexpr int kEndedKept = 16;
constexpr uint64_t kUnreadableKept = 3600 * kSecond;
constexpr uint64_t kFullRemembered = 5 * kSecond;

using Flights = std::vector<FlightSnapshot>;
using Aged = std::pair<uint64_t, std::string>;  // when it was last written, and its path

size_t mostKept(const std::string& folder) {
  struct statvfs facts {};
  size_t bytes = kMostBytes;
  if (statvfs(folder.c_str(), &facts) == 0 && facts.f_blocks > 0)  // 0: without a limit
    bytes = std::min<size_t>(bytes, facts.f_blocks * facts.f_frsize / kMostOfFileSystem);
  return bytes / kFlightBytes;
}

// The folder in which nothing could go, for some seconds: looking through it at each creation of a
// communicator would be dear.
class FullFolder {
 public:
  bool is(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    return folder == folder_ && platform::monotonicNanoseconds() < until_;
  }
  Status note(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    folder_ = folder;
    until_ = platform::monotonicNanoseconds() + kFullRemembered;
    return fail(Code::kSystem, "%s is full of recorders that may not go yet", folder.c_str());
  }

 private:
  std::mutex mutex_;
  std::string folder_;
  uint64_t until_ = 0;
};
FullFolder& fullFolder() {
  static FullFolder& full = *new FullFolder;
  return full;
}

bool isOlder(uint64_t realtime, uint64_t age) {
  return realtime + age < platform::realtimeNanoseconds();
}

// Of another version, cut short, or never finished: nothing else is known than the age of the file.
void addUnreadable(const std::string& path, std::vector<Aged>& to) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) return;
  const uint64_t written = static_cast<uint64_t>(facts.st_mtim.tv_sec) * kSecond;
  if (isOlder(written, kUnreadableKept)) to.emplace_back(written, path);
}

// The recorders, newest first.
Flights readHeads(const std::string& folder, const std::vector<std::string>& names,
                  std::vector<Aged>& unreadable) {
  Flights flights;
  const auto ours = currentIdentity();
  if (!ours.ok()) return flights;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    auto flight = readFlightHead(path, ours.value());
    if (flight) {
      flights.push_back(std::move(*flight));
    } else {
      addUnreadable(path, unreadable);
    }
  }
  std::sort(flights.begin(), flights.end(),
            [](const auto& a, const auto& b) { return a.latestRealtime() > b.latestRealtime(); });
  return flights;
}

bool isSeenToLive(const FlightSnapshot& flight) {
  return flight.liveness != Liveness::kGone && flight.liveness != Liveness::kUnknown;
}

// Moves those of communicators that have ended, while their process lives, to the ones that may go.
void takeEnded(Flights& flights, std::vector<Aged>& to) {
  std::map<std::pair<uint64_t, uint64_t>, int> kept;
  std::erase_if(flights, [&](const FlightSnapshot& flight) {
    if (!isSeenToLive(flight) || flight.state == FlightState::kAlive) return false;
    const bool stays = ++kept[{flight.pid, flight.startTime}] <= kEndedKept;
    if (stays || !isOlder(flight.latestRealtime(), kFresh)) return false;
    to.emplace_back(flight.latestRealtime(), flight.source);
    return true;
  });
}

// Those whose jobs stay: of processes that live, and where that cannot be seen the newest and what is fresh.
Flights thoseThatStay(const Flights& flights) {
  Flights stay;
  bool anyUnseen = false;
  for (const FlightSnapshot& flight : flights) {
    const bool unseen = flight.liveness == Liveness::kUnknown;
    const bool newest = unseen && !anyUnseen;
    anyUnseen = anyUnseen || unseen;
    if (isSeenToLive(flight) || newest || (unseen && !isOlder(flight.latestRealtime(), kFresh)))
      stay.push_back(flight);
  }
  return stay;
}

// What was not written for longest is first.
std::vector<Aged> thoseThatMayGo(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<Aged> found;
  Flights flights = readHeads(folder, names, found);
  takeEnded(flights, found);
  const auto stay = communicatorsOfJobs(flights, thoseThatStay(flights));
  for (const FlightSnapshot& flight : flights) {
    if (!stay.contains(flight.communicator)) found.emplace_back(flight.latestRealtime(), flight.source);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A Status whose words are known already: fail() would log them again.
Status failQuietly(std::string why) {
  setLastError(std::move(why));
  return Status{Code::kSystem};
}

// Nobody else may have put it there, or can put anything into it. A refusal is logged once.
Status makeOwn(const std::string& folder) {
  static std::atomic<bool> said{false};
  std::string why;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    why = "cannot make " + folder + ": " + strerror(errno);
  } else if (!isFolderOfOurs(folder)) {
    why = folder + " is not a folder of this user alone";
  }
  if (why.empty()) return kOkStatus;
  return said.exchange(true) ? failQuietly(why) : fail(Code::kSystem, "%s", why.c_str());
}

bool writeAll(int descriptor, const FlightBytes& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

// What differs between two copies was changing: a reader of this one has nothing to compare it with.
void dropChanging(const FlightBytes& first, FlightBytes& second) {
  for (size_t at = kFlightHeaderBytes; at < kFlightBytes; at += sizeof(FlightSlot)) {
    if (memcmp(&first[at], &second[at], sizeof(FlightSlot)) != 0) memset(&second[at], 0, sizeof(FlightSlot));
  }
  const uint64_t now = platform::ticks();
  memcpy(&second[offsetof(FlightHeader, copiedTicks)], &now, sizeof now);
}

bool copyFlight(const std::string& from, const std::string& to) {
  const Descriptor source(open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const Descriptor copy(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (source.fd < 0 || copy.fd < 0) return false;
  const auto first = std::make_unique<FlightBytes>();
  const auto second = std::make_unique<FlightBytes>();
  if (!copyFile(source.fd, *first) || !copyFile(source.fd, *second)) return false;
  dropChanging(*first, *second);
  return writeAll(copy.fd, *second);
}

}  // namespace

std::string defaultFlightFolder() {
  return "/dev/shm/stretto-flight-" + std::to_string(geteuid());
}

FlightFolder flightFolder() {
  if (!parameters::kFlightDirectory.isSet()) return {defaultFlightFolder(), false};
  const std::string text = parameters::kFlightDirectory.text();
  return {text == "none" ? "" : text, true};
}

Status makeRoomForFlight(const std::string& folder, bool noSpace) {
  if (fullFolder().is(folder)) return failQuietly(folder + " was full a moment ago");
  STRETTO_TRY(makeOwn(folder));
  const auto names = flightFilesOf(folder, Whose::kOurs);
  if (!names.ok()) return names.status();
  const size_t there = names.value().size();
  const size_t most = noSpace ? there : mostKept(folder);
  if (there < most) return kOkStatus;
  const auto old = thoseThatMayGo(folder, names.value());
  const size_t count = std::min(old.size(), there - most / 2);
  if (count == 0 || there - count >= most) return fullFolder().note(folder);
  STRETTO_LOG(kInfo, kInit, "the %zu oldest flight recorders in %s are removed: there are %zu", count,
              folder.c_str(), there);
  for (size_t i = 0; i < count; ++i) unlink(old[i].second.c_str());
  return kOkStatus;
}

bool copyFlights(const std::string& folder, uint64_t communicator, const std::string& to) {
  if (mkdir(to.c_str(), 0700) != 0) return false;
  const auto names = flightFilesOf(folder, Whose::kAnybodys);
  if (!names.ok()) return false;
  char which[24];
  snprintf(which, sizeof which, "-%016llx-", static_cast<unsigned long long>(communicator));
  bool all = true;
  for (const std::string& name : names.value()) {
    if (name.find(which) != std::string::npos) all = copyFlight(folder + "/" + name, to + "/" + name) && all;
  }
  return all;
}

}  // namespace stretto::observe
