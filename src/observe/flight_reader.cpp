#include "observe/flight_reader.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "observe/flight_format.hpp"

namespace stretto::observe {
namespace {

constexpr uint64_t kMostRanks = 1u << 20;

// What must not differ between two copies of one record.
bool sameOperation(const FlightSlot& a, const FlightSlot& b) {
  return a.position == b.position && a.sequence == b.sequence && a.startTicks == b.startTicks &&
         a.count == b.count && a.kind == b.kind && a.ranks == b.ranks;
}

// A small enumeration from one byte of `word`; false when it is not below `limit`.
template <typename E>
bool decode(uint64_t word, int byte, int limit, E& value) {
  const auto number = static_cast<uint8_t>(word >> (8 * byte));
  value = static_cast<E>(number);
  return number < limit;
}

// A field that holds a rank + 1; false when it is neither a rank nor none.
bool decodeRank(uint64_t field, int ranks, int32_t& rank) {
  rank = static_cast<int32_t>(field) - 1;
  return field <= static_cast<uint64_t>(ranks);
}

// An operation that was running in the first copy is told as running. One that was over by then stays as it
// is until its place is taken: both copies must agree on how and when it ended, or the second saw the next
// one.
bool sameEnd(const FlightSlot& a, const FlightSlot& b) {
  const bool running = (a.outcome & 0xff) == static_cast<uint64_t>(OperationState::kRunning);
  return running || (a.outcome == b.outcome && a.endTicks == b.endTicks);
}

bool decodeSlot(const FlightSlot& first, const FlightSlot& second, int ranks, FlightOperation& to) {
  to.place = second.position;
  to.sequence = second.sequence;
  to.startTicks = second.startTicks;
  to.count = second.count;
  const uint64_t outcome = first.outcome;
  bool valid = decode(second.kind, 0, kCalls, to.function) && decode(second.kind, 1, kDataTypes, to.type) &&
               decode(second.kind, 2, kOperators, to.op) &&
               decode(second.kind, 3, algorithms::kAlgorithms, to.algorithm) &&
               decode(second.kind, 4, algorithms::kProtocols, to.protocol) && second.kind >> 41 == 0 &&
               decodeRank(second.ranks & 0xffffffff, ranks, to.root) &&
               decodeRank(second.ranks >> 32, ranks, to.peer) && decode(outcome, 0, 4, to.state) &&
               decode(outcome, 1, static_cast<int>(Code::kAborted) + 1, to.code) &&
               decodeRank((outcome >> 16) & 0xffff, ranks, to.failedPeer) &&
               decodeRank(outcome >> 32, ranks, to.awaited) && (outcome & 0xff) != 0;
  to.enqueued = second.kind >> 40 != 0;
  if (to.state != OperationState::kRunning) to.endTicks = second.endTicks;
  return valid;
}

// Text from a field that should end with a zero and be printable; anything else becomes '?'.
std::string decodeText(const char* field, size_t bytes) {
  std::string text(field, strnlen(field, bytes - 1));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  return text;
}

// Why that is no header; empty if it is one.
std::string faultOf(const FlightHeader& header) {
  if (header.magic != kFlightMagic) return "not a flight recorder, or one that was never finished";
  if (header.version != kFlightVersion || header.headerBytes != kFlightHeaderBytes ||
      header.recordBytes != sizeof(FlightSlot) || header.records != kFlightRecords) {
    return "a flight recorder of version " + std::to_string(header.version) + ", and this reads version " +
           std::to_string(kFlightVersion) + ": use the doctor of the Stretto that the job runs";
  }
  const bool rateMakesSense = header.tickRate > 1e5 && header.tickRate < 1e12;  // false for NaN
  if (header.ranks < 1 || header.ranks > kMostRanks || header.rank >= header.ranks || !rateMakesSense ||
      header.pid == 0 || header.pid > 0x7fffffff) {
    return "a flight recorder with a header that makes no sense (rank " + std::to_string(header.rank) +
           " of " + std::to_string(header.ranks) + ")";
  }
  return "";
}

void decodeHeader(const FlightHeader& first, const FlightHeader& header, FlightSnapshot& to) {
  to.communicator = header.communicator;
  to.rank = static_cast<int>(header.rank);
  to.ranks = static_cast<int>(header.ranks);
  to.pid = static_cast<uint32_t>(header.pid);
  to.startTime = header.startTime;
  to.pidNamespace = header.pidNamespace;
  memcpy(to.bootId, header.bootId, sizeof to.bootId);
  to.tickRate = header.tickRate;
  to.anchorRealtime = header.anchorRealtime;
  to.anchorTicks = header.anchorTicks;
  to.host = decodeText(header.host, sizeof header.host);
  to.library = decodeText(header.library, sizeof header.library);
  to.isCopy = header.copiedTicks != 0;
  to.readTicks = header.copiedTicks;
  to.begun = header.begun;
  to.bytes = header.bytes;
  to.endedTicks = header.endedTicks;
  // A state from a later release is nothing to fall over.
  const bool known = header.state >= 1 && header.state <= static_cast<uint64_t>(FlightState::kAborted);
  to.state = known ? static_cast<FlightState>(header.state) : FlightState::kAlive;
  const bool whole = header.errorVersion == first.errorVersion && header.errorVersion % 2 == 0 &&
                     memcmp(header.errorText, first.errorText, sizeof header.errorText) == 0;
  if (header.errorVersion == 0) return;
  const std::string text =
      decodeText(reinterpret_cast<const char*>(header.errorText), sizeof header.errorText);
  to.error = whole ? text : text + " (perhaps torn)";
  to.errorTicks = header.errorTicks;
}

}  // namespace

const char* nameOf(Liveness liveness) {
  switch (liveness) {
    case Liveness::kUnknown:
      return "unknown";
    case Liveness::kRunning:
      return "running";
    case Liveness::kSleeping:
      return "sleeping";
    case Liveness::kStopped:
      return "stopped";
    case Liveness::kGone:
      return "gone";
  }
  return "unknown";
}

uint64_t FlightSnapshot::latestTicks() const {
  uint64_t latest = std::max({anchorTicks, errorTicks, endedTicks});
  for (const FlightOperation& operation : operations) {
    latest = std::max({latest, operation.startTicks, operation.endTicks});
  }
  return latest;
}

uint64_t FlightSnapshot::latestRealtime() const {
  return anchorRealtime +
         static_cast<uint64_t>(static_cast<double>(latestTicks() - anchorTicks) / tickRate * 1e9);
}

void FlightReading::add(FlightReading&& more) {
  std::move(more.snapshots.begin(), more.snapshots.end(), std::back_inserter(snapshots));
  std::move(more.problems.begin(), more.problems.end(), std::back_inserter(problems));
}

Result<FlightSnapshot> parseFlight(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (first.size() < kFlightBytes || second.size() < kFlightBytes) {
    return fail(Code::kInvalidUsage, "%zu bytes are too few for a flight recorder, which has %zu",
                std::min(first.size(), second.size()), kFlightBytes);
  }
  FlightHeader headers[2];
  memcpy(&headers[0], first.data(), sizeof headers[0]);
  memcpy(&headers[1], second.data(), sizeof headers[1]);
  const std::string fault = faultOf(headers[1]);
  if (!fault.empty()) return fail(Code::kInvalidUsage, "%s", fault.c_str());
  FlightSnapshot snapshot;
  decodeHeader(headers[0], headers[1], snapshot);
  for (size_t i = 0; i < kFlightRecords; ++i) {
    const size_t offset = kFlightHeaderBytes + i * sizeof(FlightSlot);
    FlightSlot a;
    FlightSlot b;
    memcpy(&a, first.data() + offset, sizeof a);
    memcpy(&b, second.data() + offset, sizeof b);
    if (a.position == 0 && b.position == 0) continue;
    FlightOperation operation;
    if (sameOperation(a, b) && sameEnd(a, b) && b.position % kFlightRecords == i &&
        decodeSlot(a, b, snapshot.ranks, operation)) {
      snapshot.operations.push_back(operation);
    } else {
      ++snapshot.unreadable;
    }
  }
  std::sort(snapshot.operations.begin(), snapshot.operations.end(),
            [](const FlightOperation& a, const FlightOperation& b) { return a.place < b.place; });
  return snapshot;
}

std::optional<FlightSnapshot> parseFlightHead(const FlightHeader& header, const FlightSlot& last) {
  if (!faultOf(header).empty()) return std::nullopt;
  FlightSnapshot snapshot;
  decodeHeader(header, header, snapshot);
  FlightOperation operation;
  if (last.position != 0 && decodeSlot(last, last, snapshot.ranks, operation))
    snapshot.operations.push_back(operation);
  return snapshot;
}

std::set<uint64_t> communicatorsOfJobs(const std::vector<FlightSnapshot>& flights,
                                       const std::vector<FlightSnapshot>& members) {
  std::set<uint64_t> communicators;
  std::set<std::pair<uint64_t, uint64_t>> processes;
  const auto add = [&](const FlightSnapshot& flight) {
    communicators.insert(flight.communicator);
    processes.insert({flight.pid, flight.startTime});
  };
  for (const FlightSnapshot& flight : members) add(flight);
  for (size_t known = 0; known != communicators.size() + processes.size();) {
    known = communicators.size() + processes.size();
    for (const FlightSnapshot& flight : flights) {
      if (communicators.contains(flight.communicator) || processes.contains({flight.pid, flight.startTime}))
        add(flight);
    }
  }
  return communicators;
}

}  // namespace stretto::observe
