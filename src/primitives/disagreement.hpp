// Where the calls of two ranks part, and the words for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "primitives/announcement.hpp"

namespace stretto {

// A call in the words of an error: "#3 all_reduce float32 x 21 sum"; one that nobody remembers (sequence 0)
// is "another operation".
std::string inWords(const Announcement& what);

// What `rank` says of it; both calls in words. They may be alike where an earlier one, which is not
// remembered any more, differed.
std::string ranksDisagree(int rank, const std::string& mine, int peer, const std::string& theirs);

struct Difference {
  Announcement mine{};
  Announcement theirs{};

  bool found() const { return mine.sequence != 0; }
};

// The first of the `many` operations up to `last` in which two ranks differ, as far as both are remembered:
// mine(sequence) and theirs(sequence) are their announcements, with sequence 0 where there is none.
template <typename Mine, typename Theirs>
Difference firstDifference(uint64_t last, uint64_t many, const Mine& mine, const Theirs& theirs) {
  for (uint64_t sequence = last - std::min(last, many) + 1; sequence <= last; ++sequence) {
    const Difference here{mine(sequence), theirs(sequence)};
    if (here.found() && here.theirs.sequence != 0 && here.mine.tag != here.theirs.tag) return here;
  }
  return {};
}
// The same among what the headers of two ranks remember.
Difference firstDifference(const WindowHeader& mine, const WindowHeader& theirs);

}  // namespace stretto
