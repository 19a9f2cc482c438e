// What choose() saw, as JSON for `stretto explain` and strettoExplain.
#include <cstdio>

#include "base/json.hpp"
#include "base/version.hpp"
#include "planner/choose.hpp"
#include "planner/model.hpp"

namespace stretto::planner {
namespace {

constexpr const char* kExplainSchema = "stretto.explain/1";

// Three digits after the point are a nanosecond: more would be pretence.
double rounded(float microseconds) {
  return static_cast<double>(static_cast<int64_t>(static_cast<double>(microseconds) * 1000 + 0.5)) / 1000;
}

void writeRequest(json::Writer& out, const Request& request) {
  out.key("request").beginObject();
  out.key("collective").text(nameOf(request.collective));
  out.key("type").text(nameOf(request.type));
  out.key("op").text(nameOf(request.op));
  out.key("bytes").integer(static_cast<int64_t>(request.bytes));
  if (request.tokenBytes != 0) out.key("token_bytes").integer(static_cast<int64_t>(request.tokenBytes));
  out.key("ranks").integer(request.ranks).endObject();
}

void writeMachine(json::Writer& out, const Machine& machine) {
  out.key("machine").beginObject();
  out.key("version").text(kLibraryVersion);
  out.key("cores").integer(machine.cores);
  out.key("same_process").boolean(machine.sameProcess);
  if (machine.gpu) {
    out.key("gpu").text(machine.gpus.name);
    out.key("links").text(nameOf(machine.gpus.links));
    out.key("lanes").integer(machine.channels);
    out.key("run_lanes").integer(machine.warpChunkChannels);
    out.key("deep_lanes").integer(machine.deepChannels);
  }
  if (machine.hosts > 1) {
    out.key("hosts").integer(machine.hosts);
    out.key("links").text("net");
    const HostLinks& between = machine.hostLinks;
    out.key("between_hosts").beginObject().key("hop_us").number(between.hop);
    out.key("message_us").number(between.message).key("bytes_per_us").number(between.rate);
    out.key("host_bytes_per_us").number(between.hostRate);
    out.key("measured").boolean(between.measured).endObject();
  }
  out.key("reach").boolean(machine.reach);
  out.key("deterministic").boolean(machine.deterministic);
  out.key("slot_bytes").integer(static_cast<int64_t>(machine.slotBytes));
  out.key("link_chunk").integer(static_cast<int64_t>(machine.linkChunk));
  out.key("cache_bytes").integer(static_cast<int64_t>(machine.cacheBytes)).endObject();
}

void writeTable(json::Writer& out, const Table& table, const std::string& absence) {
  char hash[20];
  snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(table.hash()));
  out.key("table").beginObject();
  out.key("origin").text(table.origin());
  out.key("entries").integer(static_cast<int64_t>(table.size()));
  out.key("hash").text(hash).key("note");
  if (absence.empty()) {
    out.null().endObject();
  } else {
    out.text(absence).endObject();
  }
}

void writePlan(json::Writer& out, const Plan& plan) {
  out.key("algorithm").text(algorithms::nameOf(plan.algorithm));
  out.key("protocol").text(algorithms::nameOf(plan.protocol));
  out.key("chunk_bytes").integer(plan.chunkBytes);
  out.key("blocks").integer(plan.blocks);
}

void writeStages(json::Writer& out, const Request& request, const Machine& machine) {
  out.key("stages").beginArray();
  for (const Stage& stage : stagesOf(request, machine)) {
    out.beginObject();
    out.key("links").text(stage.between ? "between_hosts" : "inside_hosts");
    out.key("collective").text(nameOf(stage.collective));
    out.key("algorithm").text(algorithms::nameOf(stage.algorithm));
    out.key("ranks").integer(stage.ranks);
    out.key("bytes").integer(static_cast<int64_t>(stage.bytes));
    out.key("chunk_bytes").integer(stage.chunkBytes);
    out.key("predicted_us").number(rounded(static_cast<float>(stage.microseconds))).endObject();
  }
  out.endArray();
}

void writeCandidate(json::Writer& out, const Request& request, const Machine& machine,
                    const Candidate& candidate) {
  out.beginObject();
  writePlan(out, candidate.plan);
  if (candidate.possible && candidate.plan.algorithm == Algorithm::kStages)
    writeStages(out, request, machine);
  out.key("predicted_us");
  if (candidate.possible) {
    out.number(rounded(candidate.plan.predictedMicroseconds));
  } else {
    out.null();
  }
  out.key("possible").boolean(candidate.possible);
  out.key("chosen").boolean(candidate.chosen);
  out.key("reason").text(candidate.reason).endObject();
}

void writeChosen(json::Writer& out, const Result<Plan>& chosen) {
  out.key("chosen");
  if (!chosen.ok()) {
    out.null().key("why").null().key("error").text(lastError());
    return;
  }
  const Plan& plan = chosen.value();
  out.beginObject();
  writePlan(out, plan);
  out.key("rings").integer(plan.rings);
  out.key("ring_gather").text(algorithms::nameOf(plan.directions));
  out.key("stream").boolean(plan.stream);
  out.key("predicted_us").number(rounded(plan.predictedMicroseconds)).endObject();
  out.key("why").text(nameOf(plan.why)).key("error").null();
}

}  // namespace

std::string explainJson(const Request& request, const Machine& machine, const Table& table,
                        const Forced& forced) {
  json::Writer out;
  out.beginObject().key("schema").text(kExplainSchema);
  writeRequest(out, request);
  writeMachine(out, machine);
  const bool measured = table.find(request, machine).nearest != nullptr;
  writeTable(out, table, measured || request.ranks == 1 ? "" : table.absenceOf(request, machine));
  out.key("candidates").beginArray();
  for (const Candidate& candidate : explain(request, machine, table, forced))
    writeCandidate(out, request, machine, candidate);
  out.endArray();
  writeChosen(out, choose(request, machine, table, forced));
  return out.endObject().take();
}

}  // namespace stretto::planner
