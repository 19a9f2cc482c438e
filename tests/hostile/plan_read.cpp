// What can be asked of a plan that has been drawn.
#include <algorithm>
#include <utility>

#include "plan.hpp"

namespace hostile {

int Plan::processes() const {
  return 1 + *std::max_element(processOf.begin(), processOf.end());
}

bool Plan::isVictim(int rank) const {
  return std::any_of(events.begin(), events.end(), [&](const Event& event) {
    if (event.act == Act::kStop || event.act == Act::kFork || event.act == Act::kLate) return false;
    const bool whole = event.act == Act::kKill || event.act == Act::kExit;
    return rank == event.rank || (whole && processOf[rank] == processOf[event.rank]);
  });
}

std::vector<int> Plan::victims() const {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) {
    if (isVictim(rank)) all.push_back(rank);
  }
  return all;
}

bool Plan::expectsErrors() const {
  return odd != kNobody || !victims().empty();
}

bool Plan::joinsAt(int rank, int step) const {
  if (step == kInitStep) return true;
  if (step < 0 || step >= finalStep()) return false;
  const Step& one = steps[static_cast<size_t>(step)];
  return one.what == Step::Do::kGrow && one.joins[static_cast<size_t>(rank)];
}

std::vector<int> membersOf(const Split& split, int rank) {
  std::vector<int> members;
  const int colour = split.colours[static_cast<size_t>(rank)];
  if (colour == kNobody) return members;
  for (int other = 0; other < static_cast<int>(split.colours.size()); ++other) {
    if (split.colours[static_cast<size_t>(other)] == colour) members.push_back(other);
  }
  const auto place = [&](int one) { return std::pair(split.keys[static_cast<size_t>(one)], one); };
  std::sort(members.begin(), members.end(), [&](int a, int b) { return place(a) < place(b); });
  return members;
}

std::vector<std::vector<int>> allMembersOf(const Step& step, int rank) {
  std::vector<std::vector<int>> all;
  if (step.child.colours.empty()) return all;
  all.push_back(membersOf(step.child, rank));
  for (const Split& one : step.further) all.push_back(membersOf(one, rank));
  return all;
}

std::string Plan::text() const {
  constexpr const char* kLayouts[] = {"threads", "processes", "mixed"};
  constexpr const char* kMakerActs[] = {" that exits", " that is killed", " that is stopped"};
  constexpr const char* kQuirks[] = {"none", "count", "type", "op", "root", "function", "missing", "swapped"};
  constexpr const char* kSteps[] = {"", "split", "shrink", "grow", "drop the child"};
  std::string text = "round " + std::to_string(seed) + ": " + hostile::nameOf(kind) + ", " +
                     std::to_string(ranks) + " ranks, " + kLayouts[static_cast<size_t>(layout)] +
                     (blocking ? "" : ", non-blocking") + (streams ? ", streams" : "") + ", id of " +
                     (maker == Maker::kProcess
                          ? std::string("a process") + (kind == Kind::kMaker ? kMakerActs[makerActs] : "")
                          : "rank " + std::to_string(makerRank)) +
                     (algorithm.empty() ? "" : ", " + algorithm + (protocol.empty() ? "" : "/" + protocol)) +
                     ", afterwards " +
                     (aftermath == Aftermath::kAbort    ? "abort"
                      : aftermath == Aftermath::kShrink ? "shrink"
                                                        : "destroy") +
                     "\n  processes";
  for (const int process : processOf) text += " " + std::to_string(process);
  text += "\n";
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    text += "  " + std::to_string(i) + (step.onChild ? " child:" : ":") + " " +
            kSteps[static_cast<size_t>(step.what)];
    for (const int colour : step.child.colours) text += " " + std::to_string(colour);
    for (const Split& one : step.further) {
      text += " and";
      for (const int colour : one.colours) text += " " + std::to_string(colour);
    }
    for (size_t rank = 0; rank < step.joins.size(); ++rank) {
      if (step.joins[rank]) text += " rank " + std::to_string(rank) + " joins";
    }
    const auto add = [&](const Call& call) {
      text += std::string(" ") + hostile::nameOf(call.function) + " " + nameOfType(call.type) + " x " +
              std::to_string(call.count) + " op " + std::to_string(call.op) + " root " +
              std::to_string(call.root) + ";";
    };
    for (const Call& call : step.calls) add(call);
    if (step.lag > 0)
      text += " rank " + std::to_string(step.laggard) + " late by " + std::to_string(step.lag) + " us";
    if (odd != kNobody && quirkStep == static_cast<int>(i)) {
      text += "   rank " + std::to_string(odd) + ": " + kQuirks[static_cast<size_t>(quirk)];
      add(quirkCall);
    }
    text += "\n";
  }
  for (const Event& event : events) {
    text += std::string("  ") + hostile::nameOf(event.act) + " rank " + std::to_string(event.rank) +
            " at step " + std::to_string(event.step) + " after " + std::to_string(event.delay) + " us" +
            (event.follows ? " of the first" : "") + " variant " + std::to_string(event.variant) + "\n";
  }
  return text;
}

}  // namespace hostile
