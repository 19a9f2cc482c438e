#include "observe/doctor_report.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "observe/flight_folder.hpp"

namespace stretto::observe {
namespace {

constexpr size_t kMostPids = 1024;

std::string hex(uint64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// Nanoseconds since 1970 for the ticks of one host. All its processes are converted by the one anchor that
// was taken first: they share the counter, so their order stays true to it whatever the wall clock did.
class Timeline {
 public:
  Timeline(const FlightSnapshot& of, const std::vector<FlightSnapshot>& all) : anchor_(&of) {
    for (const FlightSnapshot& other : all) {
      if (memcmp(other.bootId, of.bootId, sizeof of.bootId) == 0 &&
          other.anchorTicks < anchor_->anchorTicks) {
        anchor_ = &other;
      }
    }
  }
  int64_t nanoseconds(uint64_t ticks) const {
    const double since = static_cast<double>(static_cast<int64_t>(ticks - anchor_->anchorTicks));
    const double offset = since * 1e9 / anchor_->tickRate;
    const double total = static_cast<double>(anchor_->anchorRealtime) + offset;
    const bool fits =
        total > 0 && total < 9e18 && std::fabs(offset) < 9e18 && anchor_->anchorRealtime < 1ull << 62;
    if (!fits) return 0;
    return static_cast<int64_t>(anchor_->anchorRealtime) + static_cast<int64_t>(std::llround(offset));
  }

 private:
  const FlightSnapshot* anchor_;
};

void rankOrNull(json::Writer& out, const char* key, int rank) {
  out.key(key);
  rank < 0 ? out.null() : out.integer(rank);
}

void writeOperation(json::Writer& out, const FlightOperation& operation, const Timeline& timeline) {
  out.beginObject();
  out.key("place").integer(static_cast<int64_t>(operation.place));
  out.key("sequence").integer(static_cast<int64_t>(operation.sequence));
  out.key("function").text(nameOf(operation.function));
  out.key("type").text(nameOf(operation.type));
  out.key("op").text(nameOf(operation.op));
  out.key("count").integer(static_cast<int64_t>(operation.count));
  out.key("algorithm").text(nameOf(operation.algorithm));
  out.key("protocol").text(nameOf(operation.protocol));
  rankOrNull(out, "root", operation.root);
  rankOrNull(out, "peer", operation.peer);
  out.key("state").text(nameOf(operation.state));
  out.key("code").text(nameOf(operation.code));
  rankOrNull(out, "failed_peer", operation.failedPeer);
  rankOrNull(out, "awaited", operation.awaited);
  out.key("start_ns").integer(timeline.nanoseconds(operation.startTicks));
  out.key("end_ns");
  operation.state == OperationState::kRunning ? out.null()
                                              : out.integer(timeline.nanoseconds(operation.endTicks));
  out.endObject();
}

void writeMember(json::Writer& out, const FlightSnapshot& member, const std::vector<FlightSnapshot>& all) {
  const Timeline timeline(member, all);
  out.beginObject();
  writeFacts(out, member);
  out.key("source").text(member.source);
  out.key("library").text(member.library);
  out.key("unreadable").integer(member.unreadable);
  out.key("read_ns");
  member.readTicks == 0 ? out.null() : out.integer(timeline.nanoseconds(member.readTicks));
  out.key("operations").beginArray();
  for (const FlightOperation& operation : member.operations) writeOperation(out, operation, timeline);
  out.endArray().endObject();
}

void writeCommunicator(json::Writer& out, const CommunicatorDiagnosis& one,
                       const std::vector<FlightSnapshot>& all) {
  out.beginObject();
  writeFacts(out, one);
  out.key("suspects").beginArray();
  for (const int rank : one.suspects) out.integer(rank);
  out.endArray();
  out.key("members").beginArray();
  for (const FlightSnapshot* member : one.members) writeMember(out, *member, all);
  out.endArray().endObject();
}

Result<FlightReading> readProcesses(const std::vector<os::ProcessId>& pids) {
  FlightReading all;
  for (const os::ProcessId pid : pids) {
    auto one = readProcess(pid);
    if (!one.ok()) {
      all.problems.push_back(lastError());
      continue;
    }
    all.add(std::move(one.value()));
  }
  return all;
}

}  // namespace

void writeTexts(json::Writer& out, const char* key, const std::vector<std::string>& texts) {
  out.key(key).beginArray();
  for (const std::string& text : texts) out.text(text);
  out.endArray();
}

void writeFacts(json::Writer& out, const CommunicatorDiagnosis& one) {
  out.key("id").text(hex(one.communicator));
  out.key("ranks").integer(one.ranks);
  out.key("verdict").text(nameOf(one.verdict));
  writeTexts(out, "sentences", one.sentences);
}

void writeFacts(json::Writer& out, const FlightSnapshot& flight) {
  out.key("rank").integer(flight.rank);
  out.key("host").text(flight.host);
  out.key("pid").integer(flight.pid);
  out.key("state").text(nameOf(flight.state));
  out.key("process").text(nameOf(flight.liveness));
  out.key("error").text(flight.error);
  out.key("begun").integer(static_cast<int64_t>(flight.begun));
}

Result<std::vector<os::ProcessId>> parsePids(const std::string& target) {
  std::vector<os::ProcessId> pids;
  const char* at = target.data();
  const char* end = at + target.size();
  while (pids.size() < kMostPids) {
    os::ProcessId pid = 0;
    const auto [next, error] = std::from_chars(at, end, pid);
    if (error != std::errc{} || pid <= 0 || (next != end && *next != ',')) break;
    pids.push_back(pid);
    if (next == end) return pids;
    at = next + 1;
  }
  return fail(Code::kInvalidArgument, "\"%.200s\" is no list of at most %zu process ids, such as 123,124",
              target.c_str(), kMostPids);
}

std::string reportText(const Diagnosis& diagnosis, const FlightReading& reading) {
  std::string text;
  for (const CommunicatorDiagnosis& one : diagnosis.communicators) {
    text += "communicator " + hex(one.communicator) + ", " + std::to_string(one.ranks) + " rank" +
            (one.ranks == 1 ? "" : "s") + ": " + nameOf(one.verdict) + "\n";
    for (const std::string& sentence : one.sentences) text += "  " + sentence + "\n";
  }
  for (const std::string& problem : reading.problems) text += "not read: " + problem + "\n";
  return text;
}

std::string reportJson(const Diagnosis& diagnosis, const FlightReading& reading) {
  json::Writer out;
  out.beginObject();
  out.key("schema").text("stretto.doctor/1");
  out.key("verdict").text(nameOf(diagnosis.verdict));
  out.key("text").text(diagnosis.text);
  out.key("communicators").beginArray();
  for (const CommunicatorDiagnosis& one : diagnosis.communicators) {
    writeCommunicator(out, one, reading.snapshots);
  }
  out.endArray();
  writeTexts(out, "problems", reading.problems);
  out.endObject();
  return out.take();
}

Result<FlightReading> readTarget(const std::string& target) {
  const bool digits = !target.empty() && target.find_first_not_of("0123456789,") == std::string::npos;
  const auto pids =
      digits ? parsePids(target) : Result<std::vector<os::ProcessId>>(std::vector<os::ProcessId>{});
  if (!pids.ok()) return pids.status();
  auto reading = digits           ? readProcesses(pids.value())
                 : target.empty() ? readLastJob(defaultFlightFolder())
                                  : readPaths(target);
  if (!reading.ok() || !reading.value().snapshots.empty()) return reading;
  std::string reasons;
  for (const std::string& problem : reading.value().problems) {
    reasons += (reasons.empty() ? "" : "; ") + problem;
  }
  return fail(Code::kInvalidUsage, "no flight recorder could be read: %.800s", reasons.c_str());
}

}  // namespace stretto::observe
