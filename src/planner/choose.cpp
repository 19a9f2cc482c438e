#include "planner/choose.hpp"

#include <algorithm>
#include <atomic>

#include "base/log.hpp"
#include "base/stable_sort.hpp"
#include "planner/cuda_model.hpp"
#include "planner/model.hpp"
#include "primitives/window.hpp"

namespace stretto::planner {
namespace {

Status check(const Request& request, const Machine& machine) {
  const int most = machine.gpu || machine.hosts == 1 ? kMaxRanks : kMostRanks;
  if (request.ranks >= 1 && request.ranks <= most) return kOkStatus;
  return fail(Code::kInvalidArgument, "%d ranks: a plan is for 1 to %d", request.ranks, most);
}

// The least that a chunk holds: whole tokens, where the norm is part of the exchange.
size_t leastChunk(const Descriptor& row, const Request& request) {
  return row.normApart ? 0 : request.tokenBytes;
}

// A forced chunk is obeyed or refused, so a row that would have to cut it down, or to exceed it, is no
// candidate. Blocks likewise.
bool fits(const Descriptor& row, const Request& request, const Machine& machine,
          const Forced::Choice& choice) {
  const size_t chunk = choice.chunkBytes;
  const bool holds = chunk <= mostChunk(row, request, machine) && chunk >= leastChunk(row, request);
  return (chunk == 0 || holds) && choice.blocks <= mostBlocks(row, machine);
}

// The machine as a plan sees it that has so many blocks; 0 leaves them open.
Machine withBlocks(Machine machine, int blocks) {
  if (blocks != 0) machine.blocks = blocks;
  return machine;
}

bool usable(const Descriptor& row, const Request& request, const Machine& machine,
            const Forced::Choice& choice) {
  return row.collective == request.collective && choice.allows(row) &&
         obstacleTo(row, request, machine) == Obstacle::kNone && fits(row, request, machine, choice);
}

Plan planOf(const Descriptor& row, const Request& request, const Machine& machine, uint32_t chunkBytes) {
  Plan plan;
  plan.algorithm = row.algorithm;
  plan.protocol = row.protocol;
  plan.rings = row.algorithm == Algorithm::kRing ? machine.rings : uint8_t{1};
  plan.directions = algorithms::gathersAlongRing(row) ? machine.directions : Directions::kOneWay;
  const bool takesChunk =
      chunkBytes != 0 && wayOf(row) != Way::kLocal && algorithms::takesChunk(row.protocol);
  plan.chunkBytes = takesChunk ? std::min(chunkBytes, mostChunk(row, request, machine))
                               : preferredChunk(row, request, machine);
  plan.blocks = static_cast<uint8_t>(machine.gpu ? preferredBlocks(row, request, machine) : 1);
  plan.stream = streams(request, machine);
  plan.predictedMicroseconds = static_cast<float>(predict(row, request, machine, plan.chunkBytes));
  return plan;
}

// What keeps a measured row from deciding.
enum class Unfit : uint8_t { kNot, kForced, kObstacle, kFewBlocks, kOtherBlocks };
struct Judgement {
  Unfit unfit = Unfit::kNot;
  Obstacle obstacle = Obstacle::kNone;
};

Judgement judge(const Table::Row& row, const Request& request, const Machine& machine,
                const Forced::Choice& choice) {
  const Descriptor& descriptor = *row.descriptor;
  if (!choice.allows(descriptor)) return {Unfit::kForced};
  // With the blocks that it was measured with it may carry less than with all.
  const Obstacle obstacle = obstacleTo(descriptor, request, withBlocks(machine, row.blocks));
  if (obstacle != Obstacle::kNone) return {Unfit::kObstacle, obstacle};
  if (machine.blocks != 0 && row.blocks != machine.blocks) return {Unfit::kOtherBlocks};
  if (row.blocks > mostBlocks(descriptor, machine)) return {Unfit::kFewBlocks};
  // The planner's number was another where there were more.
  if (row.blocks == 0 && machine.fewBlocks &&
      preferredBlocks(descriptor, request, machine) >= mostBlocks(descriptor, machine)) {
    return {Unfit::kFewBlocks};
  }
  if (!fits(descriptor, request, machine, choice)) return {Unfit::kForced};
  return {};
}

std::string wordsOf(const Judgement& judgement, const Table::Row& row, const Request& request,
                    const Machine& machine) {
  const std::string measured = row.blocks == 0
                                   ? "it was measured with the planner's number of blocks"
                                   : "it was measured with " + std::to_string(row.blocks) + " blocks";
  switch (judgement.unfit) {
    case Unfit::kNot:
      return "";
    case Unfit::kForced:
      return "something else is forced";
    case Unfit::kObstacle:
      return reasonOf(*row.descriptor, judgement.obstacle, request, withBlocks(machine, row.blocks));
    case Unfit::kFewBlocks:
      return measured + ", and at most " + std::to_string(mostBlocks(*row.descriptor, machine)) +
             " can take part here";
    case Unfit::kOtherBlocks:
      return measured + ", and " + std::to_string(machine.blocks) + " are insisted on";
  }
  return "unknown";
}

// Says once per process that a measurement could not be used: the table may be for another machine.
void reportIgnored(const Table& table, const Table::Row& row, const Request& request, const Machine& machine,
                   const Judgement& judgement) {
  const bool expected = judgement.unfit == Unfit::kForced || judgement.obstacle == Obstacle::kBytes;
  static std::atomic<bool> reported{false};
  if (expected || reported.load(std::memory_order_relaxed) || reported.exchange(true)) return;
  STRETTO_LOG(kInfo, kTuning, "table %s: %s by %s at %llu bytes is not used here: %s", table.origin().c_str(),
              nameOf(row.descriptor->collective), algorithms::nameOf(row.descriptor->algorithm),
              static_cast<unsigned long long>(row.bytes), wordsOf(judgement, row, request, machine).c_str());
}

// The measured plan; false if there is none that can run and is allowed.
bool fromTable(const Request& request, const Machine& machine, const Table& table,
               const Forced::Choice& choice, Plan& plan) {
  const Table::Match match = table.find(request, machine);
  for (const Table::Row* row : {match.nearest, match.other}) {
    if (row == nullptr) continue;
    const Judgement judgement = judge(*row, request, machine, choice);
    if (judgement.unfit != Unfit::kNot) {
      reportIgnored(table, *row, request, machine, judgement);
      continue;
    }
    plan = planOf(*row->descriptor, request, withBlocks(machine, row->blocks),
                  choice.chunkBytes != 0 ? choice.chunkBytes : row->chunkBytes);
    plan.why = Why::kTable;
    plan.predictedMicroseconds = match.microseconds;
    return true;
  }
  return false;
}

bool fromModel(const Request& request, const Machine& machine, const Forced::Choice& choice, Plan& plan) {
  bool found = false;
  for (const Descriptor& row : algorithms::descriptors(deviceOf(machine))) {
    if (!usable(row, request, machine, choice)) continue;
    const Plan candidate = planOf(row, request, machine, choice.chunkBytes);
    if (found && candidate.predictedMicroseconds >= plan.predictedMicroseconds) continue;
    plan = candidate;
    found = true;
  }
  return found;
}

// Tables are measured in memory that nobody has registered. What needs a window competes with what was
// measured, by the model.
void considerWindows(const Request& request, const Machine& machine, const Forced::Choice& choice,
                     Plan& plan) {
  const bool any = request.windowed || request.pullsOnce || request.pullsTwice;
  if (!any || plan.why != Why::kTable) return;
  for (const Descriptor& row : algorithms::descriptors(deviceOf(machine))) {
    if (!needsWindow(row) || !usable(row, request, machine, choice)) continue;
    const Plan candidate = planOf(row, request, machine, choice.chunkBytes);
    if (candidate.predictedMicroseconds < plan.predictedMicroseconds) plan = candidate;
  }
}

// Names of what could run, and what stands in the way of what was asked for.
Status refuse(const Request& request, const Machine& machine, const Forced::Choice& choice) {
  std::string possible;
  std::string reasons;
  bool exists = false;
  for (const Descriptor& row : algorithms::descriptors(deviceOf(machine))) {
    if (row.collective != request.collective) continue;
    const std::string name =
        std::string(algorithms::nameOf(row.algorithm)) + "/" + algorithms::nameOf(row.protocol);
    const Obstacle obstacle = obstacleTo(row, request, machine);
    if (obstacle == Obstacle::kNone) possible += (possible.empty() ? "" : ", ") + name;
    if (!choice.allows(row)) continue;
    exists = true;
    if (obstacle != Obstacle::kNone) {
      reasons += "; " + name + ": " + reasonOf(row, obstacle, request, machine);
    } else if (choice.blocks > mostBlocks(row, machine)) {
      reasons += "; " + name + ": at most " + std::to_string(mostBlocks(row, machine)) +
                 " blocks can take part here";
    } else if (mostChunk(row, request, machine) == 0 && choice.chunkBytes != 0) {
      reasons += "; " + name + ": it has no chunks";
    } else if (choice.chunkBytes != 0 && choice.chunkBytes < leastChunk(row, request)) {
      reasons += "; " + name + ": a token is " + std::to_string(request.tokenBytes) +
                 " bytes, and its chunks hold whole tokens";
    } else if (!fits(row, request, machine, choice)) {
      reasons += "; " + name + ": its chunks are " + std::to_string(mostChunk(row, request, machine)) +
                 " bytes at most";
    }
  }
  if (!exists)
    reasons = machine.gpu ? "; ranks on GPUs have no such form" : "; ranks on hosts have no such form";
  return fail(Code::kInvalidUsage, "%s of %zu bytes by %d ranks cannot run as %s%s. Possible here: %s",
              nameOf(request.collective), request.bytes, request.ranks, choice.any() ? "forced" : "planned",
              reasons.c_str(), possible.empty() ? "nothing" : possible.c_str());
}

std::string describe(const Descriptor& row, const Plan& plan, const Forced::Choice& choice, Why why,
                     double best) {
  if (why == Why::kOnlyOne) return "there is one rank only";
  const bool isPromised = !choice.any() && algorithms::needsPromise(row.protocol);
  if (isPromised) return "it is only for who forces it, and keeps what that promises";
  if (!choice.allows(row)) return "something else is forced";
  char text[96];
  const double behind = plan.predictedMicroseconds - best;
  snprintf(text, sizeof text, "%.2f µs slower than the chosen one%s", behind,
           why == Why::kTable ? ", by the model" : "");
  if (behind <= 0) return why == Why::kTable ? "another was measured to be faster" : "no faster";
  return text;
}

const char* describeChosen(const Plan& plan) {
  switch (plan.why) {
    case Why::kOnlyOne:
      return "there is one rank only";
    case Why::kTable:
      return "measured fastest at this size";
    case Why::kForced:
      return "forced";
    case Why::kModel:
      break;
  }
  return "fastest by the model";
}

bool isPlanOf(const Plan& plan, const Descriptor& row) {
  return plan.algorithm == row.algorithm && plan.protocol == row.protocol;
}

// What forced blocks make of a machine: the same as STRETTO_BLOCKS, for one collective.
Machine seenBy(const Forced::Choice& choice, const Machine& machine) {
  return withBlocks(machine, machine.gpu ? choice.blocks : 0);
}

// That this algorithm was measured fastest about this size and yet does not run; empty if that is not so.
std::string whyUnfit(const Descriptor& descriptor, const Table::Match& match, const Request& request,
                     const Machine& machine, const Forced::Choice& choice) {
  for (const Table::Row* row : {match.nearest, match.other}) {
    if (row == nullptr || row->descriptor != &descriptor) continue;
    const Judgement judgement = judge(*row, request, machine, choice);
    if (judgement.unfit == Unfit::kNot || judgement.unfit == Unfit::kForced) return {};
    return "measured fastest at " + std::to_string(row->bytes) + " bytes, but " +
           wordsOf(judgement, *row, request, machine);
  }
  return {};
}

// Of an all-reduce with RMSNorm, whether the norm is part of the exchange, with the blocks of this plan.
const char* wordsOfNorm(const Descriptor& row, const Request& request, const Machine& machine,
                        const Plan& plan) {
  if (row.collective != Collective::kAllReduceAddRmsNorm) return "";
  const NormForm form = normFormOf(row, request, machine, {plan.blocks, plan.chunkBytes});
  return form == NormForm::kApart ? "; the norm is a pass of its own" : "; fused with the norm";
}

}  // namespace

Result<Plan> choose(const Request& request, const Machine& machine, const Table& table,
                    const Forced& forced) {
  STRETTO_TRY(check(request, machine));
  const bool alone = request.ranks == 1;
  const Forced::Choice choice = alone ? Forced::Choice{} : forced.of(request.collective);
  const Machine seen = seenBy(choice, machine);
  Plan plan;
  if (!fromTable(request, seen, table, choice, plan) && !fromModel(request, seen, choice, plan)) {
    return refuse(request, seen, choice);
  }
  considerWindows(request, seen, choice, plan);
  if (alone) {
    plan.why = Why::kOnlyOne;
  } else if (choice.any()) {
    plan.why = Why::kForced;
  }
  return plan;
}

std::vector<Candidate> explain(const Request& request, const Machine& machine, const Table& table,
                               const Forced& forced) {
  const Result<Plan> chosen = choose(request, machine, table, forced);
  const Forced::Choice choice = request.ranks == 1 ? Forced::Choice{} : forced.of(request.collective);
  const Machine seen = seenBy(choice, machine);
  const Table::Match match = table.find(request, seen);
  std::vector<Candidate> candidates;
  for (const Descriptor& row : algorithms::descriptors(deviceOf(machine))) {
    if (row.collective != request.collective) continue;
    Candidate& candidate = candidates.emplace_back();
    const Obstacle obstacle = obstacleTo(row, request, seen);
    candidate.possible = obstacle == Obstacle::kNone;
    candidate.plan.algorithm = row.algorithm;
    candidate.plan.protocol = row.protocol;
    candidate.chosen = candidate.possible && chosen.ok() && isPlanOf(chosen.value(), row);
    if (candidate.possible)
      candidate.plan = candidate.chosen ? chosen.value() : planOf(row, request, seen, 0);
    const Plan best = chosen.ok() ? chosen.value() : candidate.plan;
    if (candidate.chosen) {
      candidate.reason = describeChosen(best);
    } else if (candidate.reason = whyUnfit(row, match, request, seen, choice); candidate.reason.empty()) {
      candidate.reason = candidate.possible
                             ? describe(row, candidate.plan, choice, best.why, best.predictedMicroseconds)
                             : reasonOf(row, obstacle, request, seen);
    }
    if (candidate.possible || row.normApart)
      candidate.reason += wordsOfNorm(row, request, seen, candidate.plan);
  }
  sortStably(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.possible != b.possible) return a.possible;
    return a.plan.predictedMicroseconds < b.plan.predictedMicroseconds;
  });
  return candidates;
}

}  // namespace stretto::planner
