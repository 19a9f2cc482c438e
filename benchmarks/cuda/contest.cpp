#include "contest.hpp"

#include <cmath>

namespace stretto::bench {
namespace {

// The 8 us at a graph's ends are less than one percent of it; recording a longer one takes more time than it
// saves.
constexpr double kContestGraphMicroseconds = 1000;
constexpr size_t kMostInGraph = 300;
constexpr double kLeastInTurn = 3;
constexpr double kMostInTurn = 50;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The ranks hold the same numbers after slowest(), so they come to the same batch and drop the same entrants
// without a word more.
double fastest(GpuRank& rank, size_t batch, size_t batches, uint64_t* wrong) {
  const auto times = rank.crew().slowest(rank.measure(1, batch, batches, wrong).device);
  return *std::min_element(times.begin(), times.end());
}

// One checked call, then both graphs, and about how long a call takes.
void enter(GpuRank& rank, const Request& request, const Rules& rules, Entrant& entrant) {
  try {
    rank.prepare(request, entrant.forced, true);
  } catch (const Refusal& refusal) {
    entrant.refusal = refusal.what();
    return;
  }
  entrant.wrong += rank.checkOnce();
  double estimate = fastest(rank, 1, 3, &entrant.wrong);
  entrant.batch = static_cast<size_t>(
      std::clamp<double>(std::ceil(kContestGraphMicroseconds / estimate), 1, kMostInGraph));
  if (entrant.batch > 1) estimate = fastest(rank, entrant.batch, 2, &entrant.wrong);
  const double replay = estimate * static_cast<double>(entrant.batch);
  entrant.replays =
      static_cast<size_t>(std::clamp(rules.turnMicroseconds / replay, kLeastInTurn, kMostInTurn));
  entrant.recorded = rank.putAside();
}

void takeTurn(GpuRank& rank, Entrant& entrant) {
  rank.takeUp(std::move(entrant.recorded));
  const Times times = rank.measure(1, entrant.batch, entrant.replays, &entrant.wrong);
  entrant.turns.push_back(median(rank.crew().slowest(times.device)));
  entrant.recorded = rank.putAside();
}

// Those that are still in, after the first turn.
std::vector<Entrant*> remaining(const std::vector<Entrant*>& in, double drop) {
  double best = in.front()->turns.front();
  for (const Entrant* one : in) best = std::min(best, one->turns.front());
  std::vector<Entrant*> left;
  for (Entrant* one : in) {
    if (drop <= 0 || one->turns.front() <= best * drop) left.push_back(one);
  }
  return left;
}

}  // namespace

void compete(GpuRank& rank, const Request& request, const Rules& rules, std::vector<Entrant>& entrants) {
  std::vector<Entrant*> in;
  for (Entrant& entrant : entrants) {
    enter(rank, request, rules, entrant);
    if (entrant.refusal.empty()) in.push_back(&entrant);
  }
  for (size_t round = 0; round < rules.rounds && !in.empty(); ++round) {
    for (Entrant* entrant : in) takeTurn(rank, *entrant);
    if (round == 0) in = remaining(in, rules.drop);
  }
  for (Entrant& entrant : entrants) entrant.recorded = {};
}

}  // namespace stretto::bench
