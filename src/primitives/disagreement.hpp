// Where the calls of two ranks part, which rank a wait is for, and the words for both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/rank_set.hpp"
#include "base/types.hpp"
#include "primitives/call_record.hpp"
#include "primitives/peer.hpp"

namespace stretto {

// A call in the words of an error: "#3 all_reduce float32 x 21 sum"; one that nobody remembers (sequence 0)
// is "another operation".
std::string inWords(const CallRecord& what);

// What `rank` says of it; both calls in words. They may be alike where an earlier one, which is not
// remembered any more, differed.
std::string ranksDisagree(int rank, const std::string& mine, int peer, const std::string& theirs);

// The same of `members` (at least two) that wait for each other in calls that do not belong
// together, in the words of `rank`: of its own call, if it is a member, and of one that differs.
std::string ranksStandStill(std::span<const Peer> peers, const RankSet& members, int rank);
// That `rank` waits for one that has finalised and will not do its part; `call`: in which call, in words.
std::string waitsForWhoFinalised(int rank, int gone, const std::string& call, bool isForSignals);
// "rank 2", "ranks 0, 1 and 5"; of many: "ranks 0, 5 to 90, 93 and 17 more".
std::string ranksInWords(const RankSet& ranks);
// That `rank` has waited so long, and goes on. `peers`: for whom, empty if that is not known; `call`: in
// which call, and what is missing there.
std::string waitsForLong(int rank, double seconds, const RankSet& peers, const std::string& call);

// The ranks that `other` has found to disagree with each other: none, or at least two that there are,
// whatever the word there says.
RankSet disagreeingAt(const WindowHeader& other, int ranks);

constexpr bool isWaitForSignals(const CallRecord& call) {
  return call.sequence != 0 && call.collective == static_cast<uint8_t>(Collective::kWaitSignal);
}
// Also a wait for signals: announced the same way.
constexpr bool isTransfer(const CallRecord& call) {
  return isWaitForSignals(call) ||
         (call.sequence != 0 && (call.collective == static_cast<uint8_t>(Collective::kSend) ||
                                 call.collective == static_cast<uint8_t>(Collective::kReceive)));
}

// What a rank has called last, as far as it has said so: transfers are announced by who waits long in them or
// finds a disagreement; sequence 0 if it has called nothing.
CallRecord currentCall(const WindowHeader& window);
// Written by the owner of `wait`, for currentCall(); startedTicks says which call was the last.
void recordTransfer(LongWait& wait, const CallRecord& transfer);

struct Difference {
  CallRecord mine{};
  CallRecord theirs{};

  bool found() const { return mine.sequence != 0; }
};

// The first of the `many` operations up to `last` in which two ranks differ, as far as both are remembered:
// mine(sequence) and theirs(sequence) are their call records, with sequence 0 where there is none.
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
