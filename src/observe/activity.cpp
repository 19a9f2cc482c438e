#include "observe/activity.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace stretto::observe {
namespace {

// One collective as all ranks saw it, by index of the member.
struct Shared {
  std::vector<const FlightOperation*> entries;  // null: has not entered it
  bool whole = true;                            // no rank has forgotten it
};

// Who waits for whom, by what the collective means.
enum class Waiting { kAllForAll, kAllForRoot, kRootForAll };

Waiting waitingOf(Collective function) {
  switch (function) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return Waiting::kAllForRoot;
    case Collective::kReduce:
    case Collective::kGather:
      return Waiting::kRootForAll;
    default:
      return Waiting::kAllForAll;
  }
}

class Follower {
 public:
  Follower(const Case& facts, uint64_t from)
      : facts_(facts), from_(from), until_(firstReading(facts)), result_(facts.members.size()) {}

  std::vector<Activity> run() {
    if (facts_.members.empty()) return result_;
    for (uint64_t sequence = firstKnownToAll(); sequence <= lastEntered(); ++sequence) {
      const Shared shared = find(sequence);
      if (shared.whole) follow(shared);
    }
    return result_;
  }

 private:
  // Recorders are read one after another. What came after the first reading is known of some ranks only.
  static uint64_t firstReading(const Case& facts) {
    uint64_t first = std::numeric_limits<uint64_t>::max();
    for (const Member& member : facts.members) {
      if (member.exact) first = std::min(first, member.now);
    }
    return first;
  }

  uint64_t end(size_t i) const { return std::min(facts_.members[i].now, until_); }

  uint64_t firstKnownToAll() const {
    uint64_t first = 1;
    for (const Member& member : facts_.members) first = std::max(first, oldest(member));
    return first;
  }

  static uint64_t oldest(const Member& member) {
    for (const FlightOperation& operation : member.flight->operations) {
      if (operation.sequence != 0) return operation.sequence;
    }
    return 1;
  }

  uint64_t lastEntered() const {
    uint64_t last = 0;
    for (const Member& member : facts_.members) last = std::max(last, member.entered());
    return last;
  }

  // Operations lie in the order of their numbers: each member is walked through once.
  Shared find(uint64_t sequence) {
    cursors_.resize(facts_.members.size());
    Shared shared;
    for (size_t i = 0; i < facts_.members.size(); ++i) {
      const auto& operations = facts_.members[i].flight->operations;
      size_t& at = cursors_[i];
      while (at < operations.size() && operations[at].sequence < sequence) ++at;
      const bool entered = at < operations.size() && operations[at].sequence == sequence;
      shared.entries.push_back(entered ? &operations[at] : nullptr);
      // A record that was being written, or one of which only later ones are there.
      if (!entered && at < operations.size()) shared.whole = false;
      if (entered && operations[at].enqueued) shared.whole = false;
    }
    return shared;
  }

  // When the member entered; for one that has not, the end of what is known of it.
  uint64_t arrival(const Shared& shared, size_t i) const {
    return shared.entries[i] != nullptr ? shared.entries[i]->startTicks : end(i);
  }

  void follow(const Shared& shared) {
    const auto entry = std::find_if(shared.entries.begin(), shared.entries.end(),
                                    [](const FlightOperation* one) { return one != nullptr; });
    if (entry == shared.entries.end()) return;
    const Waiting waiting = waitingOf((*entry)->function);
    size_t last = 0;
    size_t root = shared.entries.size();
    for (size_t i = 0; i < shared.entries.size(); ++i) {
      if (arrival(shared, i) > arrival(shared, last)) last = i;
      if (facts_.members[i].rank() == (*entry)->root) root = i;
    }
    for (size_t i = 0; i < shared.entries.size(); ++i) {
      if (shared.entries[i] == nullptr) continue;
      const bool waits = waiting == Waiting::kAllForAll || (waiting == Waiting::kRootForAll) == (i == root);
      const size_t cause = waiting == Waiting::kAllForRoot ? root : last;
      if (waits && cause < shared.entries.size()) addWait(shared, i, cause);
      follow(i, *shared.entries[i]);
    }
    noteAwaited(shared);
  }

  // The wait ends when the awaited rank enters, and no later than the operation does.
  void addWait(const Shared& shared, size_t waiter, size_t cause) {
    const FlightOperation& own = *shared.entries[waiter];
    uint64_t last = std::min(arrival(shared, cause), end(waiter));
    if (own.state != OperationState::kRunning) last = std::min(last, own.endTicks);
    const uint64_t first = std::max(own.startTicks, from_);
    if (last <= first) return;
    result_[waiter].waited += last - first;
    result_[waiter].waitedFor[facts_.members[cause].rank()] += last - first;
    result_[cause].late += last - first;
  }

  void follow(size_t i, const FlightOperation& operation) {
    const uint64_t since = std::max(operation.startTicks, from_);
    if (end(i) > since) result_[i].window = std::max(result_[i].window, end(i) - since);
  }

  void noteAwaited(const Shared& shared) {
    std::vector<int> behind;
    for (size_t i = 0; i < shared.entries.size(); ++i) {
      if (shared.entries[i] == nullptr) behind.push_back(facts_.members[i].rank());
    }
    for (size_t i = 0; i < shared.entries.size(); ++i) {
      const FlightOperation* own = shared.entries[i];
      const bool inside = own != nullptr && own->state == OperationState::kRunning;
      if (inside && own == facts_.members[i].last()) result_[i].awaited = behind;
    }
  }

  const Case& facts_;
  const uint64_t from_;
  const uint64_t until_;
  std::vector<Activity> result_;
  std::vector<size_t> cursors_;
};

// Ticks of different hosts cannot be compared.
bool comparable(const Case& facts) {
  return std::all_of(facts.members.begin(), facts.members.end(), [&](const Member& member) {
    return std::equal(std::begin(member.flight->bootId), std::end(member.flight->bootId),
                      std::begin(facts.members.front().flight->bootId));
  });
}

}  // namespace

std::vector<Activity> activityOf(const Case& facts, uint64_t from) {
  if (!comparable(facts)) return std::vector<Activity>(facts.members.size());
  return Follower(facts, from).run();
}

}  // namespace stretto::observe
