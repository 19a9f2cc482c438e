// What ranks were told, against what had happened.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "conductor.hpp"

namespace hostile {
namespace {

// All numbers N in "rank N" and "ranks N".
std::vector<int> ranksIn(std::string_view words) {
  std::vector<int> ranks;
  for (size_t at = words.find("rank"); at != words.npos; at = words.find("rank", at + 4)) {
    size_t digit = at + 4;
    if (digit < words.size() && words[digit] == 's') ++digit;
    if (digit >= words.size() || words[digit] != ' ') continue;
    int number = 0;
    bool any = false;
    for (++digit; digit < words.size() && std::isdigit(static_cast<unsigned char>(words[digit])); ++digit) {
      number = number * 10 + (words[digit] - '0');
      any = true;
    }
    if (any) ranks.push_back(number);
  }
  return ranks;
}

struct Judge {
  const Plan& plan;
  Board& board;

  int64_t since(int rank) const {
    return board.lastFault != 0 ? board.lastFault.load() : board.ranks[rank].told.entered;
  }

  void complain(Wrong wrong, int rank, const char* what) const {
    const Told& told = board.ranks[rank].told;
    board.report(wrong, "rank %d, step %d, %.1f ms after the fault: \"%s\" returned %d, %s: %s", rank,
                 told.step, static_cast<double>(told.at - board.lastFault) * 1e-6, told.call,
                 told.code.load(), what, told.words);
  }

  // When the first thing happened that ranks are told of; 0: never.
  int64_t firstFault() const {
    int64_t first = 0;
    for (size_t i = 0; i < plan.events.size(); ++i) {
      const Act act = plan.events[i].act;
      const int64_t when = board.faults[i];
      if (act == Act::kStop || act == Act::kFork || when == 0) continue;
      first = first == 0 ? when : std::min(first, when);
    }
    return first;
  }

  // Ranks of a child have other numbers there; a sentence may take either.
  std::vector<int> namesOf(int victim, int teller) const {
    std::vector<int> names = {victim};
    if (!board.ranks[teller].told.inChild) return names;
    for (const Step& step : plan.steps) {
      for (const std::vector<int>& members : allMembersOf(step, teller)) {
        const auto at = std::find(members.begin(), members.end(), victim);
        if (at != members.end()) names.push_back(static_cast<int>(at - members.begin()));
      }
    }
    return names;
  }

  // The first rank of the communicator that grows; nobody if none does.
  int namer() const {
    for (const Step& step : plan.steps) {
      if (step.what != Step::Do::kGrow) continue;
      const std::vector<int>& keys = step.child.keys;
      return static_cast<int>(std::find(keys.begin(), keys.end(), 0) - keys.begin());
    }
    return kNobody;
  }

  bool isBeforeAnyFault(int rank) const {
    const int64_t first = firstFault();
    return first == 0 || board.ranks[rank].told.at < first;
  }

  // One to whom something was to happen: what it is told of that is its own affair.
  void victim(int rank) const {
    if (isBeforeAnyFault(rank)) complain(Wrong::kUnexpected, rank, "before any fault");
  }

  void loss(int rank) const {
    const Told& told = board.ranks[rank].told;
    if (isBeforeAnyFault(rank)) return complain(Wrong::kUnexpected, rank, "before any fault");
    if (told.code != ncclRemoteError) return complain(Wrong::kWords, rank, "not ncclRemoteError");
    const std::vector<int> named = ranksIn(told.words);
    for (const int victim : plan.victims()) {
      for (const int name : namesOf(victim, rank)) {
        if (std::find(named.begin(), named.end(), name) != named.end()) return;
      }
    }
    // Who joins a communicator that grows knows of the rank that named it no more than its process.
    const bool namerDied = strstr(told.words, "the process that hosts the rendezvous") != nullptr ||
                           strstr(told.words, "the process that made this unique id has ended") != nullptr;
    if (namerDied && plan.isVictim(namer())) return;
    // Who was told of it by one communicator and gives up another has no reason to give there. It tells its
    // peers before its own call returns.
    constexpr int64_t kBefore = kSecond / 2;
    for (int other = 0; other < plan.ranks; ++other) {
      const Told& theirs = board.ranks[other].told;
      if (theirs.code == ncclSuccess || theirs.at > told.at + kBefore) continue;
      if (!theirs.inChild && !told.inChild) continue;
      for (const int name : namesOf(other, rank)) {
        if (other != rank && std::find(named.begin(), named.end(), name) != named.end()) return;
      }
    }
    complain(Wrong::kWords, rank, "which names none of those that were lost");
  }

  bool othersKnewBefore(int rank) const {
    for (int other = 0; other < plan.ranks; ++other) {
      const Told& told = board.ranks[other].told;
      if (told.code == ncclInvalidUsage && told.at <= board.ranks[rank].told.at) return true;
    }
    return false;
  }

  bool hasTransfers() const {
    return isAmong([](Function function) { return isTransfer(function); });
  }
  // Nobody but the root waits for the others in a reduce or a gather, and the root waits for nobody in a
  // broadcast or a scatter.
  bool onlySends(const Call& call) const {
    const bool fromRoot = call.function == Function::kBroadcast || call.function == Function::kBcast ||
                          call.function == Function::kScatter;
    const bool toRoot = call.function == Function::kReduce || call.function == Function::kGather;
    return (fromRoot && plan.odd == call.root) || (toRoot && plan.odd != call.root);
  }

  // In pairs of an odd number of ranks one does nothing, and may do something else; a transfer may come
  // before or after a collective if nobody waits for it; and who only sends in two calls may send in any
  // order.
  bool mayGoUnnoticed() const {
    const auto at = plan.steps.begin() + plan.quirkStep;
    const auto after = at + 1;
    if (plan.quirk == Quirk::kSwapped && onlySends(at->calls[0]) && onlySends(after->calls[0])) return true;
    // Nor does anybody wait for who should only have received, if no collective comes after.
    const bool last = std::all_of(after, plan.steps.end(),
                                  [](const Step& step) { return isTransfer(step.calls[0].function); });
    // Nor for who sends to the root where it should have received from it.
    const bool fromRoot = at->calls[0].function == Function::kBroadcast ||
                          at->calls[0].function == Function::kBcast ||
                          at->calls[0].function == Function::kScatter;
    // Nor does either of two roots, where they send over links that nothing else uses.
    const bool roots = fromRoot && plan.quirk == Quirk::kRoot && plan.ranks == 2 && plan.device;
    const bool sends = fromRoot && plan.odd != at->calls[0].root && onlySends(plan.quirkCall);
    const bool other = plan.quirk == Quirk::kMissing || (plan.quirk == Quirk::kFunction && sends);
    return (plan.quirk == Quirk::kSwapped && hasTransfers()) || (other && last) || roots ||
           isAmong([](Function function) { return function == Function::kPairs; });
  }

  // Whether one of the calls that differ is such.
  template <typename Such>
  bool isAmong(const Such& such) const {
    const auto step = static_cast<size_t>(plan.quirkStep);
    return such(plan.quirkCall.function) || such(plan.steps[step].calls[0].function) ||
           such(plan.steps[step + 1].calls[0].function);
  }

  static bool names(const Told& told, int rank) {
    const std::vector<int> named = ranksIn(told.words);
    return std::find(named.begin(), named.end(), rank) != named.end();
  }

  // A call of which nobody waits for an answer may return, and its rank may finalise, before anybody sees
  // that ranks disagree. Then a rank is told that a peer has finalised, and the others lose that rank: their
  // words name the odd rank, or the rank that had finalised before the odd one waited for it.
  bool isBecauseOfWhoLeft(const Told& told) const {
    const bool left = strstr(told.words, "has finalised") != nullptr;
    if (!left && strstr(told.words, "because of rank") == nullptr) return false;
    if (names(told, plan.odd)) return true;
    const Told& odd = board.ranks[plan.odd].told;
    if (strstr(odd.words, "has finalised") == nullptr) return false;
    const std::vector<int> gone = ranksIn(odd.words);
    return std::any_of(gone.begin(), gone.end(), [&](int rank) { return names(told, rank); });
  }

  void disagreement(int rank) const {
    const Told& told = board.ranks[rank].told;
    // What a worker or a stream is to run begins later than its call.
    const int64_t began = plan.blocking && !plan.streams ? told.entered : told.at;
    const bool after = told.before || (board.firstAbort != 0 && began > board.firstAbort);
    // Who is behind has not called what differs: it hears of it, or loses the others.
    const bool behind = told.step < plan.quirkStep && othersKnewBefore(rank);
    if (told.code == ncclRemoteError && (after || behind)) return;
    if (told.step < plan.quirkStep && !behind) {
      return complain(Wrong::kUnexpected, rank, "before anybody disagreed");
    }
    // Of transfers only those that wait for each other disagree; others are told why they have lost them.
    const bool reason =
        strstr(told.words, "ranks disagree") != nullptr || strstr(told.words, "must agree") != nullptr;
    if (told.code == ncclRemoteError && reason && hasTransfers()) return;
    if (isBecauseOfWhoLeft(told)) return;
    if (told.code != ncclInvalidUsage) return complain(Wrong::kWords, rank, "not ncclInvalidUsage");
    std::vector<int> named = ranksIn(told.words);
    std::sort(named.begin(), named.end());
    named.erase(std::unique(named.begin(), named.end()), named.end());
    if (named.size() < 2) complain(Wrong::kWords, rank, "which does not name two ranks");
  }
};

}  // namespace

void judge(const Plan& plan, Board& board) {
  const Judge judge{plan, board};
  int told = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (board.ranks[rank].told.code == ncclSuccess) continue;
    ++told;
    if (plan.isVictim(rank)) {
      judge.victim(rank);
      continue;
    }
    if (!plan.expectsErrors()) {
      judge.complain(Wrong::kUnexpected, rank, "though nothing happened that it should be told of");
    } else if (plan.odd != kNobody) {
      judge.disagreement(rank);
    } else {
      judge.loss(rank);
    }
  }
  if (plan.odd != kNobody && told == 0 && !judge.mayGoUnnoticed()) {
    board.report(Wrong::kUnexpected, "ranks disagreed, and nobody was told");
  }
}

}  // namespace hostile
