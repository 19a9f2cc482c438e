#include "communicator/device/together.hpp"

#include <algorithm>

namespace stretto::communicator {
namespace {

// Fewer lanes than are wanted, in proportion to what each wants. Who would have less than its least by that
// has its least, and the others share the rest.
void shareOut(std::span<LaneShare> turn, int64_t wanted, int64_t lanes) {
  for (LaneShare& one : turn) one.blocks = 0;
  // Each that is taken out leaves the others a smaller part of what they want: again, until it is enough for
  // all of them.
  for (bool isEnough = false; !isEnough;) {
    isEnough = true;
    for (LaneShare& one : turn) {
      if (one.blocks != 0 || one.wanted * lanes >= one.least * wanted) continue;
      one.blocks = one.least;
      lanes -= one.blocks;
      wanted -= one.wanted;
      isEnough = false;
    }
  }
  // Where each ends is rounded down, not how many it has: they fill the lanes, and each has its part rounded
  // down or up, so no less than its least and no more than it wants.
  int64_t before = 0, given = 0;
  for (LaneShare& one : turn) {
    if (one.blocks != 0) continue;
    before += one.wanted;
    const int64_t end = before * lanes / wanted;
    one.blocks = static_cast<int>(end - given);
    given = end;
  }
}

void giveTurn(std::span<LaneShare> turn, int lanes) {
  int64_t wanted = 0;
  for (const LaneShare& one : turn) wanted += one.wanted;
  if (wanted > lanes) {
    shareOut(turn, wanted, lanes);
  } else {
    for (LaneShare& one : turn) one.blocks = one.wanted;
  }
  int next = 0;
  for (LaneShare& one : turn) {
    one.first = next;
    next += one.blocks;
  }
}

// One turn, unless there are not even lanes for the least of all.
void giveRun(std::span<LaneShare> run, int lanes) {
  while (!run.empty()) {
    size_t many = 0;
    for (int taken = 0; many < run.size() && taken + run[many].least <= lanes; ++many) {
      taken += run[many].least;
    }
    giveTurn(run.first(many), lanes);
    run = run.subspan(many);
  }
}

}  // namespace

void giveLanes(std::span<LaneShare> group, int lanes, const std::function<int(size_t)>& leastOf) {
  for (size_t begin = 0, end = 0; begin < group.size(); begin = end) {
    int64_t wanted = 0;
    for (end = begin; end < group.size() && group[end].shares; ++end) wanted += group[end].wanted;
    for (size_t i = begin; i < end; ++i) {
      const int most = std::min(group[i].wanted, lanes);
      group[i].least = wanted <= lanes ? most : std::clamp(leastOf(i), 1, most);
    }
    giveRun(group.subspan(begin, end - begin), lanes);
    if (end == group.size()) break;
    LaneShare& alone = group[end++];
    alone.first = 0;
    alone.blocks = alone.wanted;
  }
}

}  // namespace stretto::communicator
