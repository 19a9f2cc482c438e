#include "observe/flight.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "base/os.hpp"
#include "observe/flight_format.hpp"
#include "platform/clock.hpp"
#include "platform/process_exit.hpp"

namespace stretto::observe {
namespace {

constexpr auto kRelease = std::memory_order_release;

inline void store(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, kRelease);
}

constexpr uint64_t outcomeWord(OperationState state, Status status, int awaited) {
  const auto failedPeer = static_cast<uint64_t>(static_cast<uint16_t>(status.peer + 1));
  return byteOf(state, 0) | byteOf(status.code, 1) | failedPeer << 16 | rankField(awaited, 32);
}

// A host name may hold whatever its administrator liked; a file name may not.
std::string fileName(const FlightIdentity& identity) {
  std::string host = identity.process.hostname;
  for (char& c : host) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.';
    if (!plain) c = '_';
  }
  char rest[80];
  snprintf(rest, sizeof rest, "-%u-%016llx-%d%s", identity.process.pid,
           static_cast<unsigned long long>(identity.communicator), identity.rank, kFlightSuffix);
  return "stretto-" + host + rest;
}

// Where the file system has no room, recorders that may go make it.
Result<platform::SharedMemory> createAmongOthers(const std::string& folder, const std::string& path) {
  STRETTO_TRY(makeRoomForFlight(folder, false));
  auto memory = platform::SharedMemory::createFile(path, kFlightBytes);
  if (memory.ok() || errno != ENOSPC) return memory;
  STRETTO_TRY(makeRoomForFlight(folder, true));
  return platform::SharedMemory::createFile(path, kFlightBytes);
}

// A file if it can be had; `path` is empty if it is memory without a name.
Result<platform::SharedMemory> createMemory(const FlightFolder& folder, const FlightIdentity& identity,
                                            std::string& path) {
  path = folder.path.empty() ? "" : folder.path + "/" + fileName(identity);
  if (!path.empty() && folder.isUsers) return platform::SharedMemory::createFile(path, kFlightBytes);
  if (!path.empty()) {
    const std::string before = lastError();
    auto memory = createAmongOthers(folder.path, path);
    if (!memory.ok()) {
      STRETTO_LOG(kInfo, kInit, "rank %d: its flight recorder ends with the process: %s", identity.rank,
                  lastError().c_str());
    }
    setLastError(before);
    if (memory.ok()) return memory;
    path.clear();
  }
  return platform::SharedMemory::create(kFlightLabel, kFlightBytes);
}

uint64_t load(const uint64_t& word) {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}

// No error was noted, and no operation ended with the communicator. What was enqueued on a GPU may have ended
// unnoticed, and counts only where somebody aborted.
bool endedInPeace(const std::byte* base) {
  const auto& header = *reinterpret_cast<const FlightHeader*>(base);
  const auto* slots = reinterpret_cast<const FlightSlot*>(base + kFlightHeaderBytes);
  const bool aborted = load(header.state) == static_cast<uint64_t>(FlightState::kAborted);
  const bool anyRuns = std::any_of(slots, slots + kFlightRecords, [&](const FlightSlot& slot) {
    const bool counts = aborted || load(slot.kind) >> 40 == 0;
    return counts && (load(slot.outcome) & 0xff) == static_cast<uint64_t>(OperationState::kRunning);
  });
  return load(header.errorVersion) == 0 && !anyRuns;
}

// The files that a process removes when it exits with status 0, as one does that never destroys its
// communicators. Never destroyed itself: it is needed at the very end.
class FilesAtExit {
 public:
  static FilesAtExit& instance() {
    static FilesAtExit& files = *new FilesAtExit;
    return files;
  }

  void add(const std::byte* base, const std::string& path) {
    static const bool called = platform::callAtExit([](int status, void*) { instance().atExit(status); });
    if (!called) return;
    const std::lock_guard lock(mutex_);
    files_[base] = {path, os::processId()};
  }
  void drop(const std::byte* base) {
    const std::lock_guard lock(mutex_);
    files_.erase(base);
  }

 private:
  struct File {
    std::string path;
    os::ProcessId owner = 0;
  };

  // A forked child may have the lock as some thread of its parent held it, and leaves its parent's files.
  void atExit(int status) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (status != 0 || !lock.owns_lock()) return;
    for (const auto& [base, file] : files_) {
      if (file.owner == os::processId() && endedInPeace(base)) std::remove(file.path.c_str());
    }
  }

  std::mutex mutex_;
  std::map<const std::byte*, File> files_;
};

void fillHeader(FlightHeader& header, const FlightIdentity& identity) {
  header.version = kFlightVersion;
  header.headerBytes = kFlightHeaderBytes;
  header.recordBytes = sizeof(FlightSlot);
  header.records = kFlightRecords;
  header.communicator = identity.communicator;
  header.ranks = static_cast<uint64_t>(identity.ranks);
  header.rank = static_cast<uint64_t>(identity.rank);
  header.pid = identity.process.pid;
  header.startTime = identity.process.startTime;
  header.pidNamespace = identity.process.pidNamespace;
  memcpy(header.bootId, identity.process.bootId, sizeof header.bootId);
  header.tickRate = platform::tickRate();
  header.anchorTicks = platform::ticks();
  header.anchorRealtime = platform::realtimeNanoseconds();
  snprintf(header.host, sizeof header.host, "%s", identity.process.hostname);
  snprintf(header.library, sizeof header.library, "%s", identity.library);
  store(header.state, static_cast<uint64_t>(FlightState::kAlive));
  store(header.magic, kFlightMagic);
}

}  // namespace

const char* nameOf(FlightState state) {
  switch (state) {
    case FlightState::kAlive:
      return "alive";
    case FlightState::kFinalized:
      return "finalized";
    case FlightState::kAborted:
      return "aborted";
  }
  return "unknown";
}

const char* nameOf(OperationState state) {
  switch (state) {
    case OperationState::kRunning:
      return "running";
    case OperationState::kDone:
      return "done";
    case OperationState::kFailed:
      return "failed";
  }
  return "unknown";
}

Result<FlightRecorder> FlightRecorder::open(const FlightIdentity& identity, const FlightFolder& folder) {
  if (identity.ranks < 1 || identity.rank < 0 || identity.rank >= identity.ranks) {
    return fail(Code::kInternal, "a flight recorder for rank %d of %d", identity.rank, identity.ranks);
  }
  FlightRecorder recorder;
  auto memory = createMemory(folder, identity, recorder.path_);
  if (!memory.ok()) return memory.status();
  recorder.memory_ = std::move(memory.value());
  recorder.base_ = recorder.memory_.data();
  recorder.owner_ = os::processId();
  recorder.stays_ = folder.isUsers || recorder.path_.empty();
  fillHeader(*recorder.header(), identity);
  if (!recorder.stays_) FilesAtExit::instance().add(recorder.base_, recorder.path_);
  return recorder;
}

FlightRecorder::FlightRecorder(FlightRecorder&& other) noexcept {
  *this = std::move(other);
}

FlightRecorder& FlightRecorder::operator=(FlightRecorder&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  begun_ = other.begun_.exchange(begun_);
  std::swap(bytes_, other.bytes_);
  std::swap(owner_, other.owner_);
  std::swap(path_, other.path_);
  std::swap(stays_, other.stays_);
  std::swap(copies_, other.copies_);
  std::swap(copiedTicks_, other.copiedTicks_);
  return *this;
}

FlightRecorder::~FlightRecorder() {
  if (!isOwner()) return;
  if (load(header()->state) == static_cast<uint64_t>(FlightState::kAlive)) setState(FlightState::kFinalized);
  if (stays_) return;
  FilesAtExit::instance().drop(base_);
  if (endedInPeace(base_)) std::remove(path_.c_str());
}

FlightHeader* FlightRecorder::header() const {
  return reinterpret_cast<FlightHeader*>(base_);
}

bool FlightRecorder::isOwner() const {
  return base_ != nullptr && os::processId() == owner_;
}

FlightSlot* FlightRecorder::slotOf(uint64_t place) const {
  auto* slots = reinterpret_cast<FlightSlot*>(base_ + kFlightHeaderBytes);
  return &slots[place % kFlightRecords];
}

uint64_t FlightRecorder::begin(const FlightCall& call, uint64_t sequence, uint64_t startTicks,
                               uint64_t count) noexcept {
  if (base_ == nullptr) return 0;
  const uint64_t place = begun_.load(std::memory_order_relaxed) + 1;
  begun_.store(place, std::memory_order_relaxed);
  FlightSlot& slot = *slotOf(place);
  store(slot.position, 0);
  store(slot.sequence, sequence);
  store(slot.startTicks, startTicks);
  store(slot.count, count);
  store(slot.kind, call.kind);
  store(slot.ranks, call.ranks);
  store(slot.endTicks, 0);
  store(slot.outcome, outcomeWord(OperationState::kRunning, kOkStatus, -1));
  store(slot.position, place);
  bytes_ += count * call.elementBytes;
  store(header()->begun, place);
  store(header()->bytes, bytes_);
  return place;
}

void FlightRecorder::end(uint64_t place, Status outcome, uint64_t ticks) noexcept {
  if (base_ == nullptr || place == 0 || place + kFlightRecords <= begun_.load(std::memory_order_relaxed))
    return;
  FlightSlot& slot = *slotOf(place);
  const auto state = outcome.ok() ? OperationState::kDone : OperationState::kFailed;
  store(slot.endTicks, ticks);
  store(slot.outcome, outcomeWord(state, outcome, -1));
}

void FlightRecorder::waiting(uint64_t place, int peer) noexcept {
  if (base_ == nullptr || place == 0 || place + kFlightRecords <= begun_.load(std::memory_order_relaxed))
    return;
  store(slotOf(place)->outcome, outcomeWord(OperationState::kRunning, kOkStatus, peer));
}

std::string FlightRecorder::copyOf(uint64_t place) const {
  const uint64_t sequence = load(slotOf(place)->sequence);
  char name[80];
  const auto communicator = static_cast<unsigned long long>(header()->communicator);
  if (sequence != 0) {
    snprintf(name, sizeof name, "late-%016llx-%llu", communicator, static_cast<unsigned long long>(sequence));
  } else {
    snprintf(name, sizeof name, "late-%016llx-rank-%llu-%llu", communicator,
             static_cast<unsigned long long>(header()->rank), static_cast<unsigned long long>(place));
  }
  return path_.substr(0, path_.rfind('/') + 1) + name;
}

void FlightRecorder::late(uint64_t place, int peer) noexcept try {
  constexpr int kMostCopies = 8;
  constexpr double kRestSeconds = 10;
  const uint64_t now = platform::ticks();
  const bool rests = copies_ > 0 && platform::tickSeconds(now - copiedTicks_) < kRestSeconds;
  if (path_.empty() || place == 0 || copies_ == kMostCopies || rests) return;
  ++copies_;
  copiedTicks_ = now;
  const std::string to = copyOf(place);
  const int rank = static_cast<int>(header()->rank);
  if (copyFlights(path_.substr(0, path_.rfind('/')), header()->communicator, to)) {
    STRETTO_LOG(kWarn, kColl,
                "rank %d has waited longer than STRETTO_FLIGHT_LATE for rank %d: `stretto doctor %s` tells "
                "what each rank was doing",
                rank, peer, to.c_str());
  } else if (errno != EEXIST) {  // else another rank of the communicator has made it
    STRETTO_LOG(kWarn, kColl, "rank %d: flight recorders were not copied to %s: %s", rank, to.c_str(),
                strerror(errno));
  }
} catch (...) {
  // No memory for a path: the wait is what matters.
}

void FlightRecorder::note(const char* errorText) noexcept {
  if (!isOwner() || errorText == nullptr) return;
  uint64_t words[kFlightErrorBytes / 8] = {};
  memcpy(words, errorText, strnlen(errorText, kFlightErrorBytes - 1));
  FlightHeader& to = *header();
  std::atomic_ref version(to.errorVersion);
  uint64_t even = version.load(std::memory_order_relaxed);
  if (even % 2 != 0 || !version.compare_exchange_strong(even, even + 1, std::memory_order_acquire)) return;
  store(to.errorTicks, platform::ticks());
  for (size_t i = 0; i < std::size(words); ++i) {
    store(to.errorText[i], words[i]);
  }
  version.store(even + 2, kRelease);
}

void FlightRecorder::setState(FlightState state) noexcept {
  if (!isOwner()) return;
  if (state != FlightState::kAlive) store(header()->endedTicks, platform::ticks());
  store(header()->state, static_cast<uint64_t>(state));
}

}  // namespace stretto::observe
