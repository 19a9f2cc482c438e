#include "communicator/device/together.hpp"

#include <algorithm>

namespace stretto::communicator {
namespace {

// Fewer channels than are wanted, in proportion to what each wants. Who would have less than its least by
// that has its least, and the others share the rest.
void shareOut(std::span<ChannelShare> turn, int64_t wanted, int64_t channels) {
  for (ChannelShare& one : turn) one.blocks = 0;
  // Each that is taken out leaves the others a smaller part of what they want: again, until it is enough for
  // all of them.
  for (bool isEnough = false; !isEnough;) {
    isEnough = true;
    for (ChannelShare& one : turn) {
      if (one.blocks != 0 || one.wanted * channels >= one.least * wanted) continue;
      one.blocks = one.least;
      channels -= one.blocks;
      wanted -= one.wanted;
      isEnough = false;
    }
  }
  // Where each ends is rounded down, not how many it has: they fill the channels, and each has its part
  // rounded down or up, so no less than its least and no more than it wants.
  int64_t before = 0, given = 0;
  for (ChannelShare& one : turn) {
    if (one.blocks != 0) continue;
    before += one.wanted;
    const int64_t end = before * channels / wanted;
    one.blocks = static_cast<int>(end - given);
    given = end;
  }
}

void giveTurn(std::span<ChannelShare> turn, int channels) {
  int64_t wanted = 0;
  for (const ChannelShare& one : turn) wanted += one.wanted;
  if (wanted > channels) {
    shareOut(turn, wanted, channels);
  } else {
    for (ChannelShare& one : turn) one.blocks = one.wanted;
  }
  int next = 0;
  for (ChannelShare& one : turn) {
    one.first = next;
    next += one.blocks;
  }
}

// One turn, unless there are not even channels for the least of all.
void giveRun(std::span<ChannelShare> run, int channels) {
  while (!run.empty()) {
    size_t many = 0;
    for (int taken = 0; many < run.size() && taken + run[many].least <= channels; ++many) {
      taken += run[many].least;
    }
    giveTurn(run.first(many), channels);
    run = run.subspan(many);
  }
}

}  // namespace

void giveChannels(std::span<ChannelShare> group, int channels, const std::function<int(size_t)>& leastOf) {
  for (size_t begin = 0, end = 0; begin < group.size(); begin = end) {
    int64_t wanted = 0;
    for (end = begin; end < group.size() && group[end].shares; ++end) wanted += group[end].wanted;
    for (size_t i = begin; i < end; ++i) {
      const int most = std::min(group[i].wanted, channels);
      group[i].least = wanted <= channels ? most : std::clamp(leastOf(i), 1, most);
    }
    giveRun(group.subspan(begin, end - begin), channels);
    if (end == group.size()) break;
    ChannelShare& alone = group[end++];
    alone.first = 0;
    alone.blocks = alone.wanted;
  }
}

}  // namespace stretto::communicator
