#include "primitives/disagreement.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "base/types.hpp"

namespace stretto {
namespace {

// An all-reduce by copies tells of its results, one that pulls of its inputs.
std::string placeInWords(const CallRecord& what) {
  constexpr int kOffsetBits = 48;
  const bool isReduction = what.collective == static_cast<uint8_t>(Collective::kAllReduce);
  return (isReduction ? " in window " : " into window ") + std::to_string(what.place >> kOffsetBits) +
         " at byte " + std::to_string(what.place & ((uint64_t{1} << kOffsetBits) - 1));
}

std::string normInWords(const CallRecord& what) {
  char text[160];
  snprintf(text, sizeof text, " in tokens of %" PRIu32 ", epsilon %.9g%s%s%s%s%s", what.hidden,
           static_cast<double>(what.epsilon), what.mode.hasResidual != 0 ? ", residual" : ", no residual",
           what.mode.hasBias != 0 ? ", bias" : "", what.mode.scaling == Scaling::kNone ? "" : ", to ",
           what.mode.scaling == Scaling::kNone
               ? ""
               : nameOf(static_cast<DataType>(static_cast<int>(what.mode.quantised) % kDataTypes)),
           what.mode.scaling == Scaling::kPerToken    ? " per token"
           : what.mode.scaling == Scaling::kPerTensor ? " per tensor"
                                                      : "");
  return text;
}

}  // namespace

std::string inWords(const CallRecord& what) {
  if (what.sequence == 0) return "another operation";
  char text[200];
  if (isWaitForSignals(what)) {
    snprintf(text, sizeof text, "wait for %" PRIu64 " signals of rank %d", what.count, what.root);
    return text;
  }
  if (isTransfer(what)) {
    const bool isSend = what.collective == static_cast<uint8_t>(Collective::kSend);
    snprintf(text, sizeof text, "%s %s x %" PRIu64 " %s rank %d", isSend ? "send" : "receive",
             nameOf(static_cast<DataType>(what.type % kDataTypes)), what.count, isSend ? "to" : "from",
             what.root);
    return text;
  }
  snprintf(text, sizeof text, "#%" PRIu64 " %s %s x %" PRIu64, what.sequence,
           nameOf(static_cast<Collective>(what.collective % kCollectives)),
           nameOf(static_cast<DataType>(what.type % kDataTypes)), what.count);
  std::string words = text;
  if (what.op != 0xff) words += std::string(" ") + nameOf(static_cast<Operator>(what.op % kOperators));
  if (what.root >= 0) words += " root " + std::to_string(what.root);
  if (what.collective == static_cast<uint8_t>(Collective::kAllReduceAddRmsNorm)) words += normInWords(what);
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

std::string ranksStandStill(std::span<const Peer> peers, const RankSet& members, int rank) {
  const auto callOf = [&](int of) { return inWords(currentCall(peers[static_cast<size_t>(of)].header())); };
  const int first = members.has(rank) ? rank : members.next(-1);
  const std::string mine = callOf(first);
  int second = -1;
  for (int other = members.next(-1); other >= 0; other = members.next(other)) {
    if (other == first) continue;
    if (second < 0) second = other;
    if (callOf(other) == mine) continue;
    second = other;
    break;
  }
  return "ranks disagree: rank " + std::to_string(first) + " waits in " + mine + ", rank " +
         std::to_string(second) + " in " + callOf(second) +
         ", and they wait for each other without an end. All ranks of a communicator must make the same "
         "calls "
         "in the same order, and sends and receives that need each other belong in one group.";
}

std::string waitsForWhoFinalised(int rank, int gone, const std::string& call, bool isForSignals) {
  return "rank " + std::to_string(rank) + " waits for rank " + std::to_string(gone) + " (" + call +
         "), which has finalised its communicator without " +
         (isForSignals ? "sending them" : "calling it: all ranks of a communicator must make the same calls");
}

// Few are named one by one. Of many, neighbours are taken together, and what is more than a line is counted.
std::string ranksInWords(const RankSet& ranks) {
  constexpr int kFew = 8;
  const int all = ranks.size();
  std::vector<std::string> parts;
  int named = 0;
  for (int rank = ranks.next(-1); rank >= 0 && parts.size() < kFew; rank = ranks.next(rank)) {
    const int first = rank;
    while (all > kFew && ranks.has(rank + 1)) ++rank;
    named += rank - first + 1;
    parts.push_back(std::to_string(first) + (rank == first ? "" : " to " + std::to_string(rank)));
  }
  if (named < all) parts.push_back(std::to_string(all - named) + " more");
  std::string words = all == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i) {
    words += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return words;
}

std::string waitsForLong(int rank, double seconds, const RankSet& peers, const std::string& call) {
  char began[64];
  snprintf(began, sizeof began, "rank %d has waited %.3g s", rank, seconds);
  return began + (peers.empty() ? "" : " for " + ranksInWords(peers)) + " in " + call +
         ", and goes on waiting until STRETTO_TIMEOUT. `stretto doctor` says what each rank does.";
}

RankSet disagreeingAt(const WindowHeader& other, int ranks) {
  const uint64_t said =
      std::atomic_ref(const_cast<uint64_t&>(other.wait.disagreeing)).load(std::memory_order_acquire);
  const uint64_t known = said & RankSet::below(std::min(ranks, kMaxRanks)).bits();
  return RankSet::ofBits(std::popcount(known) >= 2 ? known : 0);
}

CallRecord currentCall(const WindowHeader& window) {
  const CallRecord& place = window.wait.call;
  const CallRecord transfer = recordedCallAt(place, wordOf(place, 0).load(std::memory_order_acquire));
  const CallRecord collective = recordedCall(window, lastRecordedCall(window));
  if (collective.sequence == 0) return transfer;
  return transfer.sequence != 0 && transfer.startedTicks > collective.startedTicks ? transfer : collective;
}

void recordTransfer(LongWait& wait, const CallRecord& transfer) {
  CallRecord call = transfer;
  call.sequence = wordOf(wait.call, 0).load(std::memory_order_relaxed) + 1;
  recordCallAt(wait.call, call);
}

// There a tag holds all before it: the latest that both remember mostly says that nothing differs.
Difference firstDifference(const WindowHeader& mine, const WindowHeader& theirs) {
  const uint64_t last = lastRecordedCall(mine);
  for (uint64_t back = 0; back < WindowHeader::kCallsKept && back < last; ++back) {
    const CallRecord other = recordedCall(theirs, last - back);
    if (other.sequence == 0) continue;
    if (other.tag == recordedCall(mine, last - back).tag) return {};
    break;
  }
  return firstDifference(
      last, WindowHeader::kCallsKept, [&](uint64_t at) { return recordedCall(mine, at); },
      [&](uint64_t at) { return recordedCall(theirs, at); });
}

}  // namespace stretto
