#include "observe/watch.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json.hpp"
#include "observe/activity.hpp"
#include "observe/doctor.hpp"
#include "observe/doctor_report.hpp"
#include "observe/doctor_words.hpp"
#include "platform/clock.hpp"

namespace stretto::observe {
namespace {

// Reading the mappings of a process costs it and us more than reading its recorders does.
constexpr double kSecondsBetweenLooks = 3;
// Two copies of each recorder. What was changing between them is left out: it is there at the next reading.
constexpr int kReads = 1;
constexpr size_t kMostWaits = 4;     // ranks that a rank waited for, longest first
constexpr size_t kMostAwaited = 16;  // ranks that have not entered

int64_t nanoseconds(uint64_t ticks, const FlightSnapshot& flight) {
  return static_cast<int64_t>(static_cast<double>(ticks) / flight.tickRate * 1e9);
}

void writeOperation(json::Writer& out, const FlightOperation& operation, const Member& member) {
  out.beginObject();
  out.key("text").text(sayOperation(operation));
  out.key("sequence").integer(static_cast<int64_t>(operation.sequence));
  out.key("function").text(nameOf(operation.function));
  out.key("bytes").integer(static_cast<int64_t>(operation.count * sizeOf(operation.type)));
  out.key("algorithm").text(nameOf(operation.algorithm));
  out.key("protocol").text(nameOf(operation.protocol));
  out.key("state").text(nameOf(operation.state));
  out.key("enqueued").boolean(operation.enqueued);
  const bool running = operation.state == OperationState::kRunning;
  const double since = member.secondsSince(running ? operation.startTicks : operation.endTicks);
  out.key("since_ns").integer(static_cast<int64_t>(since * 1e9));
  out.endObject();
}

void writeWaits(json::Writer& out, const Activity& activity, const FlightSnapshot& flight) {
  out.key("window_ns").integer(nanoseconds(activity.window, flight));
  out.key("waited_ns").integer(nanoseconds(activity.waited, flight));
  out.key("late_ns").integer(nanoseconds(activity.late, flight));
  std::vector<std::pair<uint64_t, int>> longest;
  for (const auto& [rank, ticks] : activity.waitedFor) longest.emplace_back(ticks, rank);
  const size_t shown = std::min(longest.size(), kMostWaits);
  std::partial_sort(longest.begin(), longest.begin() + static_cast<std::ptrdiff_t>(shown), longest.end(),
                    std::greater<>());
  out.key("waited_for").beginArray();
  for (size_t i = 0; i < shown; ++i) {
    out.beginObject();
    out.key("rank").integer(longest[i].second);
    out.key("ns").integer(nanoseconds(longest[i].first, flight));
    out.endObject();
  }
  out.endArray();
  out.key("awaits").beginArray();
  for (size_t i = 0; i < std::min(activity.awaited.size(), kMostAwaited); ++i) {
    out.integer(activity.awaited[i]);
  }
  out.endArray();
}

void writeMember(json::Writer& out, const Member& member, const Activity& activity) {
  const FlightSnapshot& flight = *member.flight;
  out.beginObject();
  writeFacts(out, flight);
  out.key("bytes").integer(static_cast<int64_t>(flight.bytes));
  out.key("clock_ns").integer(nanoseconds(flight.readTicks, flight));
  out.key("operation");
  const FlightOperation* last = member.last();
  if (last == nullptr) {
    out.null();
  } else {
    writeOperation(out, *last, member);
  }
  writeWaits(out, activity, flight);
  out.endObject();
}

void writeCommunicator(json::Writer& out, const CommunicatorDiagnosis& one, uint64_t from) {
  out.beginObject();
  writeFacts(out, one);
  const Case facts = makeCase(one.members);
  const std::vector<Activity> activities = activityOf(facts, from);
  out.key("members").beginArray();
  for (size_t i = 0; i < facts.members.size(); ++i) writeMember(out, facts.members[i], activities[i]);
  out.endArray().endObject();
}

}  // namespace

Result<Watch> Watch::open(const std::vector<os::ProcessId>& pids) {
  Watch watch;
  watch.pids_ = pids;
  watch.look();
  if (!watch.flights_.empty()) return watch;
  // One that was refused is told with its own code: it has a cause of its own.
  for (const os::ProcessId pid : pids) {
    if (const auto found = flightsOf(pid); !found.ok()) return found.status();
  }
  return fail(Code::kInvalidUsage,
              "no flight recorder: %s no communicator of Stretto (or not yet, or no more)",
              pids.size() == 1 ? "the process has" : "none of the processes has");
}

bool Watch::isKnown(const ProcessFlight& flight) const {
  return std::any_of(flights_.begin(), flights_.end(), [&](const ProcessFlight& known) {
    return known.pid() == flight.pid() && known.mapping().file == flight.mapping().file;
  });
}

void Watch::look() {
  looked_ = platform::ticks();
  problems_.clear();
  for (const os::ProcessId pid : pids_) {
    auto found = flightsOf(pid);
    if (!found.ok()) {
      if (found.status().code != Code::kInvalidArgument) problems_.push_back(lastError());
      continue;  // One that has ended is still read, if it was known.
    }
    for (ProcessFlight& flight : found.value()) {
      if (!isKnown(flight)) flights_.push_back(std::move(flight));
    }
  }
}

FlightReading Watch::readAll() {
  FlightReading reading;
  reading.problems = problems_;
  std::vector<ProcessFlight> kept;
  for (ProcessFlight& flight : flights_) {
    auto snapshot = flight.read(kReads);
    if (!snapshot.ok()) {
      reading.problems.push_back(flight.name() + ": " + lastError());
      continue;
    }
    if (flight.isInherited(snapshot.value())) continue;
    // A communicator that was closed in order is past, unless that was the end of the job.
    const FlightSnapshot& read = snapshot.value();
    if (read.state == FlightState::kFinalized && read.liveness != Liveness::kGone) continue;
    reading.snapshots.push_back(std::move(snapshot.value()));
    kept.push_back(std::move(flight));
  }
  flights_ = std::move(kept);
  return reading;
}

std::string Watch::read() {
  const uint64_t now = platform::ticks();
  if (static_cast<double>(now - looked_) > kSecondsBetweenLooks * platform::tickRate()) look();
  const FlightReading reading = readAll();
  json::Writer out;
  out.beginObject();
  out.key("schema").text("stretto.watch/1");
  out.key("communicators").beginArray();
  for (const CommunicatorDiagnosis& one : examine(reading).communicators) {
    writeCommunicator(out, one, read_);
  }
  out.endArray();
  writeTexts(out, "problems", reading.problems);
  out.endObject();
  read_ = now;
  return out.take();
}

}  // namespace stretto::observe
