#include "observe/doctor_case.hpp"

#include <algorithm>
#include <map>

#include "base/stable_sort.hpp"
#include "observe/doctor_words.hpp"

namespace stretto::observe {
namespace {

// The last thing known of each host: stands for the time of a recorder that nobody read there while it lived.
class LastOfHosts {
 public:
  explicit LastOfHosts(const std::vector<const FlightSnapshot*>& all) {
    for (const FlightSnapshot* flight : all) {
      uint64_t& last = last_[keyOf(*flight)];
      last = std::max(last, flight->latestTicks());
    }
  }
  uint64_t of(const FlightSnapshot& flight) const { return last_.at(keyOf(flight)); }

 private:
  static std::string keyOf(const FlightSnapshot& flight) {
    return std::string(reinterpret_cast<const char*>(flight.bootId), sizeof flight.bootId);
  }
  std::map<std::string, uint64_t> last_;
};

}  // namespace

const FlightOperation* Member::find(uint64_t sequence) const {
  for (const FlightOperation& operation : flight->operations) {
    if (operation.sequence == sequence) return &operation;
  }
  return nullptr;
}

uint64_t Member::entered() const {
  uint64_t highest = 0;
  for (const FlightOperation& operation : flight->operations) {
    highest = std::max(highest, operation.sequence);
  }
  return highest;
}

double Member::secondsSince(uint64_t ticks) const {
  return now > ticks ? static_cast<double>(now - ticks) / flight->tickRate : 0;
}

std::string Member::sayAge(uint64_t ticks) const {
  return (exact ? "" : "at least ") + sayTime(secondsSince(ticks));
}

const Member* Case::member(int rank) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [rank](const Member& member) { return member.rank() == rank; });
  return found == members.end() ? nullptr : &*found;
}

Case makeCase(std::vector<const FlightSnapshot*> flights) {
  sortStably(flights, [](const FlightSnapshot* a, const FlightSnapshot* b) {
    return a->rank != b->rank ? a->rank < b->rank : a->anchorRealtime > b->anchorRealtime;
  });
  flights.erase(
      std::unique(flights.begin(), flights.end(),
                  [](const FlightSnapshot* a, const FlightSnapshot* b) { return a->rank == b->rank; }),
      flights.end());
  const LastOfHosts lastOfHosts(flights);
  Case result;
  int next = 0;
  // A job of a million ranks of which one was read has a list that nobody needs in full.
  constexpr size_t kMostMissing = 4096;
  const auto missUntil = [&](int rank) {
    for (; next < rank && result.missing.size() < kMostMissing; ++next) result.missing.push_back(next);
    next = rank;
  };
  for (const FlightSnapshot* flight : flights) {
    missUntil(flight->rank);
    ++next;
    Member member{flight, flight->readTicks, flight->readTicks != 0};
    if (member.gone() || !member.exact) {
      member.exact = false;
      member.now = lastOfHosts.of(*flight);
    }
    result.members.push_back(member);
  }
  missUntil(flights.front()->ranks);
  result.allGone = std::all_of(result.members.begin(), result.members.end(),
                               [](const Member& member) { return member.gone(); });
  result.isCopy = std::all_of(result.members.begin(), result.members.end(),
                              [](const Member& member) { return member.flight->isCopy; });
  return result;
}

std::string sayDoing(const Member& member) {
  const FlightOperation* last = member.last();
  if (last != nullptr && last->state == OperationState::kRunning) {
    const std::string what = sayOperation(*last);
    if (member.gone()) return "ended in " + what;
    return "is in " + what + " since " + member.sayAge(last->startTicks);
  }
  std::string text;
  if (member.finalized()) {
    text = "has finalized";
  } else if (member.flight->state == FlightState::kAborted) {
    text = "has aborted";
  } else {
    text = member.gone() ? "ended between operations" : "is in no operation";
  }
  if (last == nullptr) return text + " and has begun none";
  const char* how = last->state == OperationState::kFailed ? "failed" : "finished";
  return text + "; its last, " + sayOperation(*last) + ", " + how + " " + member.sayAge(last->endTicks) +
         " ago";
}

}  // namespace stretto::observe
