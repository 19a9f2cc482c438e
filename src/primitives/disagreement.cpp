#include "primitives/disagreement.hpp"

#include <cinttypes>
#include <cstdio>

#include "base/types.hpp"

namespace stretto {
namespace {

// An all-reduce by copies tells of its results, one that pulls of its inputs.
std::string placeInWords(const Announcement& what) {
  constexpr int kOffsetBits = 48;
  const bool isReduction = what.collective == static_cast<uint8_t>(Collective::kAllReduce);
  return (isReduction ? " in window " : " into window ") + std::to_string(what.place >> kOffsetBits) +
         " at byte " + std::to_string(what.place & ((uint64_t{1} << kOffsetBits) - 1));
}

}  // namespace

std::string inWords(const Announcement& what) {
  if (what.sequence == 0) return "another operation";
  char text[200];
  snprintf(text, sizeof text, "#%" PRIu64 " %s %s x %" PRIu64, what.sequence,
           nameOf(static_cast<Collective>(what.collective % kCollectives)),
           nameOf(static_cast<DataType>(what.type % kDataTypes)), what.count);
  std::string words = text;
  if (what.op != 0xff) words += std::string(" ") + nameOf(static_cast<Operator>(what.op % kOperators));
  if (what.root >= 0) words += " root " + std::to_string(what.root);
  if (what.place != 0) words += placeInWords(what);
  return words;
}

std::string ranksDisagree(int rank, const std::string& mine, int peer, const std::string& theirs) {
  return "ranks disagree: rank " + std::to_string(rank) + " called " + mine + ", rank " +
         std::to_string(peer) + " called " + theirs +
         (mine == theirs ? ", in another group or after another call" : "") +
         ". All ranks of a communicator must call the same operations with the same count, type, operator "
         "and root, in the same order and in the same groups.";
}

// There a tag holds all before it: the latest that both remember mostly says that nothing differs.
Difference firstDifference(const WindowHeader& mine, const WindowHeader& theirs) {
  const uint64_t last = lastAnnounced(mine);
  for (uint64_t back = 0; back < WindowHeader::kAnnouncements && back < last; ++back) {
    const Announcement other = announced(theirs, last - back);
    if (other.sequence == 0) continue;
    if (other.tag == announced(mine, last - back).tag) return {};
    break;
  }
  return firstDifference(
      last, WindowHeader::kAnnouncements, [&](uint64_t at) { return announced(mine, at); },
      [&](uint64_t at) { return announced(theirs, at); });
}

}  // namespace stretto
