#include "observe/flight.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/parameters.hpp"
#include "observe/flight_format.hpp"
#include "platform/clock.hpp"

namespace stretto::observe {
namespace {

constexpr auto kRelease = std::memory_order_release;

inline void store(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, kRelease);
}

constexpr uint64_t byteOf(auto value, int place) {
  return static_cast<uint64_t>(value) << (8 * place);
}

// A rank or -1, as it lies in a field of `bits` bits.
constexpr uint64_t rankField(int rank, int shift) {
  return static_cast<uint64_t>(static_cast<uint32_t>(rank + 1)) << shift;
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

// The pages are asked for now: a full disk is an error here, and would be a SIGBUS at the first operation.
Result<platform::SharedMemory> createFile(const std::string& path) {
  auto memory = platform::SharedMemory::createFile(path, kFlightBytes);
  if (!memory.ok()) return memory;
  const int refused =
      posix_fallocate(memory.value().descriptor(), 0, static_cast<off_t>(memory.value().size()));
  if (refused != 0) {
    unlink(path.c_str());
    errno = refused;
    return failErrno("cannot take %zu bytes for %s", kFlightBytes, path.c_str());
  }
  return memory;
}

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

Result<FlightRecorder> FlightRecorder::open(const FlightIdentity& identity) {
  if (identity.ranks < 1 || identity.rank < 0 || identity.rank >= identity.ranks) {
    return fail(Code::kInternal, "a flight recorder for rank %d of %d", identity.rank, identity.ranks);
  }
  FlightRecorder recorder;
  if (parameters::kFlightDirectory.isSet()) {
    recorder.path_ = parameters::kFlightDirectory.text() + "/" + fileName(identity);
  }
  auto memory = recorder.path_.empty() ? platform::SharedMemory::create(kFlightLabel, kFlightBytes)
                                       : createFile(recorder.path_);
  if (!memory.ok()) return memory.status();
  recorder.memory_ = std::move(memory.value());
  recorder.base_ = recorder.memory_.data();
  recorder.owner_ = getpid();
  fillHeader(*recorder.header(), identity);
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
  return *this;
}

FlightRecorder::~FlightRecorder() {
  if (!isOwner()) return;
  uint64_t expected = static_cast<uint64_t>(FlightState::kAlive);
  std::atomic_ref(header()->state)
      .compare_exchange_strong(expected, static_cast<uint64_t>(FlightState::kFinalized), kRelease,
                               std::memory_order_relaxed);
}

FlightHeader* FlightRecorder::header() const {
  return reinterpret_cast<FlightHeader*>(base_);
}

bool FlightRecorder::isOwner() const {
  return base_ != nullptr && getpid() == owner_;
}

FlightSlot* FlightRecorder::slotOf(uint64_t place) const {
  auto* slots = reinterpret_cast<FlightSlot*>(base_ + kFlightHeaderBytes);
  return &slots[place % kFlightRecords];
}

FlightCall callOf(const FlightRecord& record) {
  return {uint64_t{record.enqueued} << 40 | byteOf(record.function, 0) | byteOf(record.type, 1) |
              byteOf(record.op, 2) | byteOf(record.algorithm, 3) | byteOf(record.protocol, 4),
          rankField(record.root, 0) | rankField(record.peer, 32),
          record.function < Collective::kSignal ? sizeOf(record.type) : 0};
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
  if (isOwner()) store(header()->state, static_cast<uint64_t>(state));
}

}  // namespace stretto::observe
