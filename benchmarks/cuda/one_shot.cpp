#include "one_shot.hpp"

#include <cstdio>

#include "../driver.hpp"

namespace stretto::bench {
namespace {

// The events at a graph's ends and the ranks' last differences take 8 us or so: less than half a percent of a
// graph this long.
constexpr double kGraphMicroseconds = 2000;
constexpr double kLeastReplays = 8;
constexpr double kMostReplays = 1000;
constexpr size_t kWarmup = 5;

struct Result {
  size_t bytes = 0;
  size_t batch = 0;
  std::vector<double> device;  // sorted
  std::vector<double> host;
  uint64_t wrong = 0;
};

double at(const std::vector<double>& sorted, double quantile) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(std::ceil(quantile * static_cast<double>(sorted.size() - 1)))];
}

double busFactor(const Request& r) {
  const double others = (r.ranks - 1.0) / r.ranks;
  switch (r.collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendReceive:
      return 1;
    default:
      return others;
  }
}

// What is split among the ranks counts with all its parts, as in nccl-tests.
bool isSplit(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kAllGather || c == Collective::kAllToAll ||
         c == Collective::kGather || c == Collective::kScatter;
}

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

// Estimates are of the fastest replay: a disturbed one must not make the graph short. The ranks hold the same
// numbers after slowest(), so they come to the same batch without a word more.
Result measureOne(GpuRank& rank, const Request& request, const Setup& setup, bool inGraph) {
  Result result;
  rank.prepare(request, setup.forced, inGraph);
  uint64_t wrong = rank.checkOnce();
  double estimate = at(sorted(rank.crew().slowest(rank.measure(kWarmup, 1, 5, &wrong).device)), 0);
  for (const size_t most : {size_t{20}, kMostCallsInGraph}) {
    result.batch = static_cast<size_t>(std::clamp<double>(std::ceil(kGraphMicroseconds / estimate), 1, most));
    if (result.batch > 1) {
      estimate = at(sorted(rank.crew().slowest(rank.measure(kWarmup, result.batch, 5, &wrong).device)), 0);
    }
  }
  const double turn = estimate * static_cast<double>(result.batch);
  const double replays =
      std::clamp(setup.sweep.budgetMilliseconds * 1000 / turn, kLeastReplays, kMostReplays);
  const Times times = rank.measure(kWarmup, result.batch, static_cast<size_t>(replays), &wrong);
  result.device = sorted(rank.crew().slowest(times.device));
  result.host = sorted(rank.crew().slowest(times.host));
  wrong += rank.checkOnce();
  result.wrong = static_cast<uint64_t>(rank.crew().sum(static_cast<double>(wrong)));
  result.bytes =
      request.blockBytes() * (isSplit(request.collective) ? static_cast<size_t>(request.ranks) : 1);
  return result;
}

void print(const GpuRank& rank, const Request& request, const Setup& setup, const Result& result,
           bool inGraph) {
  const double median = at(result.device, 0.5);
  const double rate = static_cast<double>(result.bytes * setup.sweep.group) / median / 1000;
  std::string how = rank.how();
  printf(
      "{\"implementation\":%s,\"version\":%s,\"collective\":\"%s\",\"ranks\":%d,\"ranks_as\":\"%s\","
      "\"device\":\"cuda\"",
      quoted(setup.name).c_str(), quoted(rank.version()).c_str(),
      kCollectiveNames[static_cast<int>(request.collective)], request.ranks,
      setup.processes ? "processes" : "threads");
  printf(
      ",\"shared_device\":%s,\"dtype\":\"%s\",\"op\":\"%s\",\"bytes\":%zu,\"in_place\":%s,\"graph\":%s,"
      "\"buffers\":\"%s\"",
      setup.sharedDevice ? "true" : "false", kTypes[static_cast<int>(request.type)].name,
      kOperatorNames[static_cast<int>(request.op)], result.bytes, request.inPlace ? "true" : "false",
      inGraph ? "true" : "false", setup.window ? "window" : "plain");
  const std::string wrong = rank.judges() ? std::to_string(result.wrong) : "null";
  printf(",\"group\":%zu,\"batch\":%zu,\"replays\":%zu", setup.sweep.group, result.batch,
         result.device.size());
  printf(",\"us_min\":%.3f,\"us_median\":%.3f,\"us_p99\":%.3f,\"host_us\":%.3f", at(result.device, 0), median,
         at(result.device, 0.99), at(result.host, 0.5));
  printf(",\"algbw_gbps\":%.3f,\"busbw_gbps\":%.3f,\"wrong\":%s,\"how\":%s}\n", rate,
         rate * busFactor(request), wrong.c_str(), how.c_str());
  fflush(stdout);
}

template <size_t kCount>
int indexOf(const char* const (&names)[kCount], const std::string& name, const char* what) {
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  throw Failure("no " + std::string(what) + " is called " + name);
}

Type typeNamed(const std::string& name) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (name == kTypes[i].name) return static_cast<Type>(i);
  }
  throw Failure("no type is called " + name);
}

// One collective of one type over all sizes.
uint64_t sweepOne(GpuRank& rank, const Setup& setup, Request request) {
  uint64_t wrong = 0;
  const size_t parts = isSplit(request.collective) ? static_cast<size_t>(request.ranks) : 1;
  for (size_t bytes = setup.sweep.least; bytes <= setup.sweep.most; bytes *= setup.sweep.factor) {
    request.count = bytes / parts / request.elementBytes();
    if (request.count == 0) continue;
    for (const bool inGraph : {true, false}) {
      if (!(inGraph ? setup.sweep.graph : setup.sweep.eager)) continue;
      const Result result = measureOne(rank, request, setup, inGraph);
      if (request.rank == 0) print(rank, request, setup, result, inGraph);
      wrong += result.wrong;
    }
  }
  return wrong;
}

}  // namespace

uint64_t sweep(GpuRank& rank, const Setup& setup) {
  uint64_t wrong = 0;
  Request request;
  request.rank = rank.crew().rank();
  request.ranks = rank.crew().ranks();
  request.inPlace = setup.sweep.inPlace;
  request.op = static_cast<Operator>(indexOf(kOperatorNames, setup.sweep.op, "operator"));
  for (const std::string& collective : setup.sweep.collectives) {
    request.collective = static_cast<Collective>(indexOf(kCollectiveNames, collective, "collective"));
    for (const std::string& type : setup.sweep.types) {
      request.type = typeNamed(type);
      try {
        wrong += sweepOne(rank, setup, request);
      } catch (const Refusal& refusal) {
        if (request.rank == 0)
          fprintf(stderr, "nccl_driver: %s left out: %s\n", collective.c_str(), refusal.what());
      }
    }
  }
  return wrong;
}

}  // namespace stretto::bench
