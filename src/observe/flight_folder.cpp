#include "observe/flight_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
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

constexpr size_t kMostKept = (size_t{16} << 20) / kFlightBytes;
// Whether a process of another pid namespace is gone cannot be seen. Its recorder may go after that; if it
// lives, only the name goes.
constexpr uint64_t kNanosecondsUnseen = uint64_t{24} * 3600 * 1000000000;

bool mayGo(const FlightSnapshot& flight) {
  if (flight.liveness != Liveness::kUnknown) return flight.liveness == Liveness::kGone;
  return flight.anchorRealtime + kNanosecondsUnseen < platform::realtimeNanoseconds();
}

// Nobody else may have put it there, or can put anything into it.
Status makeOwn(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failErrno("cannot make %s", folder.c_str());
  struct stat facts {};
  if (lstat(folder.c_str(), &facts) != 0) return failErrno("cannot look at %s", folder.c_str());
  if (S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() && (facts.st_mode & 077) == 0) return kOkStatus;
  return fail(Code::kSystem, "%s is not a folder of this user alone", folder.c_str());
}

// Of processes that are gone, the oldest first.
std::vector<std::string> thoseThatMayGo(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::pair<uint64_t, std::string>> found;
  const auto ours = currentIdentity();
  for (const std::string& name : names) {
    if (!ours.ok()) break;
    const std::string path = folder + "/" + name;
    const auto flight = readFlightFile(path, ours.value());
    if (flight.ok() && mayGo(flight.value())) found.emplace_back(flight.value().anchorRealtime, path);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [began, path] : found) paths.push_back(std::move(path));
  return paths;
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

Status makeRoomForFlight(const std::string& folder) {
  STRETTO_TRY(makeOwn(folder));
  const auto names = flightFilesOf(folder);
  if (!names.ok()) return names.status();
  if (names.value().size() < kMostKept) return kOkStatus;
  const auto paths = thoseThatMayGo(folder, names.value());
  if (paths.empty())
    return fail(Code::kSystem, "%zu processes have recorders in %s", kMostKept, folder.c_str());
  const size_t count = std::min(paths.size(), kMostKept / 2);
  STRETTO_LOG(kInfo, kInit, "the %zu oldest flight recorders in %s are removed: it holds 16 MB", count,
              folder.c_str());
  for (size_t i = 0; i < count; ++i) unlink(paths[i].c_str());
  return kOkStatus;
}

bool copyFlights(const std::string& folder, uint64_t communicator, const std::string& to) {
  if (mkdir(to.c_str(), 0700) != 0) return false;
  const auto names = flightFilesOf(folder);
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
