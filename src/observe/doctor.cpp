#include "observe/doctor.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/names.hpp"
#include "base/stable_sort.hpp"
#include "observe/doctor_case.hpp"
#include "observe/doctor_report.hpp"
#include "observe/doctor_words.hpp"

namespace stretto::observe {
namespace {

constexpr size_t kMostDetails = 8;  // sentences of one kind, after which a number stands for the rest

bool isRunning(const FlightOperation* operation) {
  return operation != nullptr && operation->state == OperationState::kRunning;
}

std::string sayProcess(const Member& gone) {
  return "(pid " + std::to_string(gone.flight->pid) + " on host " + gone.flight->host + " is gone)";
}

// Draws conclusions about one communicator, worst things first. Each step adds sentences and suspects and
// raises the verdict.
class Doctor {
 public:
  Doctor(const Case& facts, CommunicatorDiagnosis& result) : facts_(facts), result_(result) {}

  void run() {
    reportLosses();
    reportDisagreement();
    reportFailures();
    const bool inCollective = reportCollective();
    const bool inTransfers = reportTransfers();
    if (!inCollective && !inTransfers) reportRest();
    if (!facts_.missing.empty()) {
      say("no recorder of " + sayRanks(facts_.missing) + " was read: of another process or host, or gone");
      if (result_.verdict == Verdict::kWaiting && result_.suspects.empty()) result_.suspects = facts_.missing;
    }
  }

 private:
  void say(std::string sentence) { result_.sentences.push_back(std::move(sentence)); }
  void raise(Verdict verdict) { result_.verdict = std::max(result_.verdict, verdict); }
  void suspect(int rank) { result_.suspects.push_back(rank); }

  bool isMissed(const Member& lost) const;
  void reportLosses();
  void reportGone(const std::vector<const Member*>& gone, const char* how);
  void reportDisagreement();
  void reportDifference(uint64_t sequence);
  void reportFailures();
  bool isTelling(const FlightOperation& operation) const;
  bool reportCollective();
  void reportBehind(const std::vector<int>& behind, const FlightOperation& operation,
                    const std::string& waiters);
  void reportInside(const std::vector<int>& inside, const FlightOperation& operation);
  void reportAwaited(const std::vector<int>& inside);
  bool reportTransfers();
  void reportRest();

  const Case& facts_;
  CommunicatorDiagnosis& result_;
};

// Whether a rank that is gone was in an operation, or left others in one, or in one that it had not entered.
bool Doctor::isMissed(const Member& lost) const {
  return std::any_of(facts_.members.begin(), facts_.members.end(), [&](const Member& member) {
    const FlightOperation* last = member.last();
    const bool failed = last != nullptr && last->state == OperationState::kFailed;
    return isRunning(last) || failed || member.entered() > lost.entered();
  });
}

// A process that ends after its operation failed has been a witness; one that ends in the middle, or without
// an error, is what the others miss.
void Doctor::reportLosses() {
  std::vector<const Member*> died;
  std::vector<const Member*> diedOrLeft;  // others have noted that it is gone, and may not have needed it
  std::vector<const Member*> left;        // as by _exit(0), or killed between operations
  const bool noted = std::any_of(facts_.members.begin(), facts_.members.end(),
                                 [](const Member& member) { return !member.flight->error.empty(); });
  for (const Member& member : facts_.members) {
    if (!member.lost()) continue;
    const FlightOperation* last = member.last();
    const std::string who = "rank " + std::to_string(member.rank());
    const std::string process = sayProcess(member);
    const bool failed = last != nullptr && last->state == OperationState::kFailed;
    if (failed || !member.flight->error.empty()) {
      raise(Verdict::kFailed);
      say(who + " ended after an error " + process + (failed ? ": " + sayOperation(*last) + " failed" : "") +
          (member.flight->error.empty() ? "" : ": " + member.flight->error));
      continue;
    }
    const bool missed = isMissed(member);
    raise(missed || noted ? Verdict::kDied : Verdict::kLeft);
    (missed ? died : noted ? diedOrLeft : left).push_back(&member);
  }
  reportGone(died, "died");
  reportGone(diedOrLeft, "died, or left without finalising,");
  reportGone(left, "left without finalising");
  // When nobody is left, who was behind is a better suspect than who is gone.
  if (facts_.allGone) return;
  for (const Member* member : died) suspect(member->rank());
  for (const Member* member : diedOrLeft) suspect(member->rank());
}

void Doctor::reportGone(const std::vector<const Member*>& gone, const char* how) {
  std::vector<int> ranks;
  for (const Member* member : gone) {
    ranks.push_back(member->rank());
    if (ranks.size() > kMostDetails) continue;
    const FlightOperation* last = member->last();
    const char* when = last == nullptr ? " before its first operation" : isRunning(last) ? " in " : " after ";
    say("rank " + std::to_string(member->rank()) + " " + how + " " + sayProcess(*member) + when +
        (last == nullptr ? "" : sayOperation(*last)));
  }
  if (ranks.size() > kMostDetails) say("in all, " + sayRanks(ranks) + " " + how);
}

using Signature = std::tuple<Collective, DataType, Operator, int32_t, uint64_t>;

Signature signatureOf(const FlightOperation& operation) {
  const Collective function = operation.function;
  return {function, operation.type, isReduction(function) ? operation.op : Operator::kSum,
          isRooted(function) ? operation.root : -1, operation.count};
}

// The first collective that two ranks saw differently.
void Doctor::reportDisagreement() {
  std::map<uint64_t, const FlightOperation*> first;
  std::set<uint64_t> different;
  for (const Member& member : facts_.members) {
    for (const FlightOperation& operation : member.flight->operations) {
      if (operation.sequence == 0) continue;
      const auto [place, fresh] = first.emplace(operation.sequence, &operation);
      const FlightOperation& other = *place->second;
      const bool same = signatureOf(other) == signatureOf(operation) &&
                        other.algorithm == operation.algorithm && other.protocol == operation.protocol;
      if (!fresh && !same) different.insert(operation.sequence);
    }
  }
  if (!different.empty()) reportDifference(*different.begin());
}

void Doctor::reportDifference(uint64_t sequence) {
  std::map<Signature, std::vector<int>> calls;
  std::map<std::string, std::vector<int>> ways;
  for (const Member& member : facts_.members) {
    const FlightOperation* operation = member.find(sequence);
    if (operation == nullptr) continue;
    calls[signatureOf(*operation)].push_back(member.rank());
    ways[std::string(nameOf(operation->algorithm)) + " with " + nameOf(operation->protocol)].push_back(
        member.rank());
  }
  raise(Verdict::kDisagree);
  std::map<int, std::string> parts;  // by their lowest rank
  size_t most = 0;
  const auto add = [&](const std::vector<int>& ranks, const std::string& text) {
    parts[ranks.front()] = sayRanks(ranks) + text;
    most = std::max(most, ranks.size());
  };
  for (const auto& [signature, ranks] : calls) {
    add(ranks, " called " + sayOperation(*facts_.member(ranks.front())->find(sequence)));
  }
  if (calls.size() > 1) {
    for (const auto& [signature, ranks] : calls) {
      if (ranks.size() < most || calls.size() * most == facts_.members.size()) {
        result_.suspects.insert(result_.suspects.end(), ranks.begin(), ranks.end());
      }
    }
  } else {
    parts.clear();
    for (const auto& [way, ranks] : ways) add(ranks, " ran " + way);
  }
  std::string text = calls.size() > 1 ? "ranks disagree at #" + std::to_string(sequence)
                                      : "ranks ran #" + std::to_string(sequence) + " differently";
  char separator = ':';
  for (const auto& [rank, part] : parts) {
    text += separator + (" " + part);
    separator = ';';
  }
  say(text);
}

void Doctor::reportFailures() {
  size_t reported = 0;
  for (const Member& member : facts_.members) {
    if (member.lost()) continue;  // told already
    const FlightOperation* last = member.last();
    const bool failed = last != nullptr && last->state == OperationState::kFailed;
    const bool aborted = member.flight->state == FlightState::kAborted;
    if (!failed && !aborted) continue;
    raise(Verdict::kFailed);
    if (++reported > kMostDetails) continue;
    std::string text = sayMember(*member.flight) + (aborted ? " aborted its communicator" : "");
    if (failed) {
      text += (aborted ? "; " : ": ") + sayOperation(*last) + " failed " + member.sayAge(last->endTicks) +
              " ago: " + nameOf(last->code);
      if (last->failedPeer >= 0) text += " (about rank " + std::to_string(last->failedPeer) + ")";
    }
    if (!member.flight->error.empty()) text += ": " + member.flight->error;
    say(text);
  }
  if (reported > kMostDetails) say(std::to_string(reported - kMostDetails) + " more ranks failed");
}

// What was enqueued on a GPU may be done for long: it says something only if a rank has not entered it, or if
// no rank has entered a later one.
bool Doctor::isTelling(const FlightOperation& operation) const {
  if (!operation.enqueued) return true;
  uint64_t least = UINT64_MAX, most = 0;
  for (const Member& member : facts_.members) {
    least = std::min(least, member.entered());
    most = std::max(most, member.entered());
  }
  return operation.sequence > least || operation.sequence == most;
}

// About the lowest-numbered collective that somebody is in: nobody can be held up by a later one. False when
// nobody is in any.
bool Doctor::reportCollective() {
  const FlightOperation* operation = nullptr;
  for (const Member& member : facts_.members) {
    for (const FlightOperation& candidate : member.flight->operations) {
      if (candidate.sequence == 0 || !isRunning(&candidate) || !isTelling(candidate)) continue;
      if (operation == nullptr || candidate.sequence < operation->sequence) operation = &candidate;
    }
  }
  if (operation == nullptr) return false;
  std::vector<int> inside;
  std::vector<int> behind;
  const Member* oldest = nullptr;
  for (const Member& member : facts_.members) {
    const FlightOperation* own = member.find(operation->sequence);
    if (isRunning(own)) {
      inside.push_back(member.rank());
      const auto age = [&](const Member& m) {
        return m.secondsSince(m.find(operation->sequence)->startTicks);
      };
      if (oldest == nullptr || age(member) > age(*oldest)) oldest = &member;
    } else if (member.entered() < operation->sequence && (facts_.allGone || !member.lost())) {
      behind.push_back(member.rank());
    }
  }
  if (oldest == nullptr) return false;  // two records of one number: nothing that we wrote
  const FlightOperation& longest = *oldest->find(operation->sequence);
  const bool patient = oldest->secondsSince(longest.startTicks) < kPatienceSeconds && !facts_.isPast();
  raise(patient ? Verdict::kWorking : Verdict::kWaiting);
  const std::string age = oldest->sayAge(longest.startTicks);
  if (patient) {
    say(sayRanks(inside) + (inside.size() == 1 ? " is" : " are") + " in " + sayOperation(longest) +
        " since " + age);
  } else if (!behind.empty()) {
    reportBehind(behind, longest,
                 sayRanks(inside) + (inside.size() == 1 ? " waits" : " wait") + " since " + age);
  } else {
    reportInside(inside, longest);
  }
  return true;
}

void Doctor::reportBehind(const std::vector<int>& behind, const FlightOperation& operation,
                          const std::string& waiters) {
  const std::string who = behind.size() == 1 ? sayMember(*facts_.member(behind.front())->flight) + " has"
                                             : sayRanks(behind) + " have";
  say(who + " not entered " + sayOperation(operation) + "; " + waiters);
  for (size_t i = 0; i < behind.size(); ++i) {
    suspect(behind[i]);
    const Member& member = *facts_.member(behind[i]);
    if (i < kMostDetails) say(sayMember(*member.flight) + " " + sayDoing(member));
  }
}

// Everybody that was read has entered.
void Doctor::reportInside(const std::vector<int>& inside, const FlightOperation& operation) {
  const Member* latest = nullptr;
  std::vector<int> done;
  for (const Member& member : facts_.members) {
    const FlightOperation* own = member.find(operation.sequence);
    if (own != nullptr && !isRunning(own)) done.push_back(member.rank());
    if (own != nullptr &&
        (latest == nullptr || own->startTicks > latest->find(operation.sequence)->startTicks)) {
      latest = &member;
    }
  }
  const Member& first = *facts_.member(inside.front());
  double longest = 0;
  for (const int rank : inside) {
    const Member& member = *facts_.member(rank);
    longest = std::max(longest, member.secondsSince(member.find(operation.sequence)->startTicks));
  }
  const std::string age = (first.exact ? "" : "at least ") + sayTime(longest);
  const bool all = done.empty() && inside.size() == facts_.members.size() && facts_.missing.empty();
  std::string text = all ? "all ranks are" : sayRanks(inside) + (inside.size() == 1 ? " is" : " are");
  text += " in " + sayOperation(operation) + " since " + age;
  if (!done.empty()) text += "; " + sayRanks(done) + (done.size() == 1 ? " has" : " have") + " left it";
  if (inside.size() > 1) {
    text += "; rank " + std::to_string(latest->rank()) + " entered last, " +
            latest->sayAge(latest->find(operation.sequence)->startTicks) + " ago";
  }
  say(text);
  reportAwaited(inside);
}

// Who waits for whom inside the operation. Whoever is waited for and waits for nobody is the suspect; in a
// circle, a process that is stopped is.
void Doctor::reportAwaited(const std::vector<int>& inside) {
  std::map<int, std::vector<int>> waitersOf;
  for (const int rank : inside) {
    const FlightOperation* last = facts_.member(rank)->last();
    if (isRunning(last) && last->awaited >= 0) waitersOf[last->awaited].push_back(rank);
  }
  size_t reported = 0;
  for (const auto& [awaited, waiters] : waitersOf) {
    if (++reported <= kMostDetails) {
      say(sayRanks(waiters) + (waiters.size() == 1 ? " waits" : " wait") + " for rank " +
          std::to_string(awaited));
    }
    const Member* member = facts_.member(awaited);
    const bool waitsToo = member != nullptr && isRunning(member->last()) && member->last()->awaited >= 0;
    if (!waitsToo) suspect(awaited);
  }
  for (const Member& member : facts_.members) {
    if (member.flight->liveness != Liveness::kStopped) continue;
    say(sayMember(*member.flight) + " cannot go on");
    suspect(member.rank());
  }
}

// Sends and receives that have been running for long. False when no transfer runs at all.
bool Doctor::reportTransfers() {
  bool any = false;
  size_t reported = 0;
  for (const Member& member : facts_.members) {
    for (const FlightOperation& operation : member.flight->operations) {
      // One that was enqueued on a GPU before another may be done for long.
      if (operation.enqueued && &operation != member.last()) continue;
      if (operation.sequence != 0 || !isRunning(&operation) || (member.lost() && !facts_.allGone)) continue;
      any = true;
      const bool stuck = member.secondsSince(operation.startTicks) >= kPatienceSeconds || facts_.isPast();
      raise(stuck ? Verdict::kWaiting : Verdict::kWorking);
      if (!stuck || ++reported > kMostDetails) continue;
      std::string text = sayMember(*member.flight) + " is in " + sayOperation(operation) + " since " +
                         member.sayAge(operation.startTicks);
      const Member* peer = facts_.member(operation.peer);
      if (peer != nullptr && peer != &member) {
        text += "; rank " + std::to_string(operation.peer) + " " + sayDoing(*peer);
        if (!isRunning(peer->last())) suspect(operation.peer);
      }
      say(text);
    }
  }
  if (reported > kMostDetails) say(std::to_string(reported - kMostDetails) + " more transfers wait");
  if (any && reported == 0) say("transfers are running, none for long");
  return any;
}

void Doctor::reportRest() {
  std::map<uint64_t, std::vector<int>> byLast;
  bool finalized = true;
  const Member* latest = nullptr;
  for (const Member& member : facts_.members) {
    byLast[member.entered()].push_back(member.rank());
    finalized = finalized && member.finalized();
    const FlightOperation* last = member.last();
    if (last != nullptr && (latest == nullptr || last->sequence > latest->last()->sequence)) latest = &member;
  }
  if (!finalized) raise(Verdict::kIdle);
  const char* who = finalized ? "all ranks have finalized" : "all ranks idle";
  if (byLast.size() > 1) {
    std::string text = finalized ? "all ranks have finalized:" : "no rank is in an operation:";
    for (const auto& [sequence, ranks] : byLast) {
      text += (sequence == byLast.begin()->first ? " " : ", ") + sayRanks(ranks) +
              (ranks.size() == 1 ? " has" : " have") + " come to #" + std::to_string(sequence);
    }
    return say(text);
  }
  if (latest == nullptr) return say(std::string(who) + "; no operation was begun");
  const FlightOperation& last = *latest->last();
  say(std::string(who) + "; last " + (last.state == OperationState::kFailed ? "failed " : "finished ") +
      sayOperation(last) + ", " + latest->sayAge(last.endTicks) + " ago");
}

CommunicatorDiagnosis diagnoseOne(const std::vector<const FlightSnapshot*>& flights) {
  const Case facts = makeCase(flights);
  CommunicatorDiagnosis result;
  result.communicator = flights.front()->communicator;
  result.ranks = flights.front()->ranks;
  result.verdict = Verdict::kFinished;
  for (const Member& member : facts.members) result.members.push_back(member.flight);
  Doctor(facts, result).run();
  std::sort(result.suspects.begin(), result.suspects.end());
  result.suspects.erase(std::unique(result.suspects.begin(), result.suspects.end()), result.suspects.end());
  return result;
}

}  // namespace

const char* nameOf(Verdict verdict) {
  constexpr const char* kNames[] = {"finished", "idle",   "working",  "left",
                                    "waiting",  "failed", "disagree", "died"};
  return nameIn(kNames, verdict);
}

Diagnosis examine(const FlightReading& reading) {
  // A file that claims another number of ranks is another communicator, whatever its id.
  std::map<std::pair<uint64_t, int>, std::vector<const FlightSnapshot*>> groups;
  for (const FlightSnapshot& snapshot : reading.snapshots) {
    groups[{snapshot.communicator, snapshot.ranks}].push_back(&snapshot);
  }
  Diagnosis diagnosis;
  for (const auto& [key, flights] : groups) {
    diagnosis.communicators.push_back(diagnoseOne(flights));
    diagnosis.verdict = std::max(diagnosis.verdict, diagnosis.communicators.back().verdict);
  }
  sortStably(diagnosis.communicators, [](const CommunicatorDiagnosis& a, const CommunicatorDiagnosis& b) {
    return a.verdict > b.verdict;
  });
  return diagnosis;
}

Diagnosis diagnose(const FlightReading& reading) {
  Diagnosis diagnosis = examine(reading);
  diagnosis.text = reportText(diagnosis, reading);
  diagnosis.json = reportJson(diagnosis, reading);
  return diagnosis;
}

}  // namespace stretto::observe
