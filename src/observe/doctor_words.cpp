#include "observe/doctor_words.hpp"

#include <cstdio>

namespace stretto::observe {
namespace {

template <typename... Values>
std::string print(const char* format, Values... values) {
  char text[256];
  snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

bool isReduction(Collective function) {
  return function == Collective::kAllReduce || function == Collective::kReduceScatter ||
         function == Collective::kReduce || function == Collective::kAllReduceAddRmsNorm;
}

bool isRooted(Collective function) {
  return function == Collective::kBroadcast || function == Collective::kReduce ||
         function == Collective::kGather || function == Collective::kScatter;
}

std::string sayRanks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i + 2) {
      text += " to " + std::to_string(ranks[last]);
      i = last;
    }
  }
  return text;
}

std::string sayMember(const FlightSnapshot& member) {
  std::string text = print("rank %d (host %.80s, pid %u", member.rank, member.host.c_str(), member.pid);
  if (member.liveness == Liveness::kStopped) text += ", its process is stopped";
  return text + ")";
}

std::string sayOperation(const FlightOperation& operation) {
  if (operation.function == Collective::kSignal) return print("signal to rank %d", operation.peer);
  if (operation.function == Collective::kWaitSignal) {
    return print("wait for %llu signals of rank %d", static_cast<unsigned long long>(operation.count),
                 operation.peer);
  }
  std::string text;
  if (operation.sequence > 0) text = print("#%llu ", static_cast<unsigned long long>(operation.sequence));
  const Collective function = operation.function;
  text += print("%s %s", nameOf(function), nameOf(operation.type));
  if (isReduction(function) && operation.op != Operator::kSum) text += print(" %s", nameOf(operation.op));
  text += print(" x %llu", static_cast<unsigned long long>(operation.count));
  const bool isTo = function == Collective::kSend || function == Collective::kPut;
  if (isTo && operation.peer >= 0) text += print(" to rank %d", operation.peer);
  if (function == Collective::kReceive && operation.peer >= 0) text += print(" from rank %d", operation.peer);
  if (isRooted(function) && operation.root >= 0) text += print(" with root %d", operation.root);
  return text;
}

std::string sayTime(double seconds) {
  if (seconds < 1e-3) return print("%.1f µs", seconds * 1e6);
  if (seconds < 1) return print("%.1f ms", seconds * 1e3);
  if (seconds < 120) return print("%.1f s", seconds);
  if (seconds < 7200)
    return print("%.0f min %.0f s", static_cast<double>(static_cast<long>(seconds / 60)),
                 static_cast<double>(static_cast<long>(seconds) % 60));
  if (seconds < 1e9) return print("%.1f hours", seconds / 3600);
  return "a very long time";
}

}  // namespace stretto::observe
