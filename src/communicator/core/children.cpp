#include "communicator/core/children.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "base/hash.hpp"
#include "base/parameters.hpp"
#include "bootstrap/service.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/core/turn.hpp"
#include "platform/clock.hpp"
#include "primitives/call_record.hpp"

namespace stretto::communicator {
namespace {

struct Wish {
  int32_t colour;
  int32_t key;
  uint64_t children;  // made so far, as this rank counts
};
static_assert(std::has_unique_object_representations_v<Wish>, "name the padding of what travels");

template <typename T>
std::vector<uint8_t> bytesOf(const T& wish) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(&wish);
  return {begin, begin + sizeof wish};
}

// A split that failed on some ranks only was counted by some only.
uint64_t mostChildren(const bootstrap::Membership::Parts& blobs) {
  uint64_t most = 0;
  for (const auto blob : blobs) {
    Wish wish{};
    if (blob.size() == sizeof wish) std::memcpy(&wish, blob.data(), sizeof wish);
    most = std::max(most, wish.children);
  }
  return most;
}

// Ranks of one colour, by key and then by rank.
std::vector<int> ranksOfColour(const bootstrap::Membership::Parts& blobs, int colour) {
  std::vector<std::pair<int, int>> chosen;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    Wish wish{};
    if (blobs[rank].size() != sizeof wish) continue;
    std::memcpy(&wish, blobs[rank].data(), sizeof wish);
    if (wish.colour == colour) chosen.emplace_back(wish.key, static_cast<int>(rank));
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> ranks;
  for (const auto& [key, rank] : chosen) ranks.push_back(rank);
  return ranks;
}

// What each rank of a communicator that grows tells the others.
struct GrowWish {
  int32_t ranks;
  uint32_t hasId;
  bootstrap::UniqueId id;
};
static_assert(std::has_unique_object_representations_v<GrowWish>, "name the padding of what travels");

// The id that exactly one rank has given; all must want the same number of ranks.
Result<bootstrap::UniqueId> idOfGrowth(const bootstrap::Membership::Parts& blobs, int rank, int ranks) {
  bootstrap::UniqueId id{};
  int givers = 0;
  for (size_t other = 0; other < blobs.size(); ++other) {
    GrowWish wish{};
    if (blobs[other].size() == sizeof wish) std::memcpy(&wish, blobs[other].data(), sizeof wish);
    if (wish.ranks != ranks) {
      return failAbout(static_cast<int>(other), Code::kInvalidUsage,
                       "ranks disagree: rank %d grows its communicator to %d ranks, rank %zu to %d", rank,
                       ranks, other, wish.ranks);
    }
    if (wish.hasId == 0) continue;
    ++givers;
    id = wish.id;
  }
  if (givers == 1) return id;
  return fail(Code::kInvalidUsage,
              "ncclCommGrow: %d ranks of the communicator passed a unique id; one must, the one that made it "
              "by ncclCommGetUniqueId",
              givers);
}

// Children of split and of shrink are numbered apart.
constexpr uint64_t kShrunk = uint64_t{1} << 63;

// What tells this child from every other child of the same parent.
uint64_t discriminatorOf(uint64_t number, const std::vector<int>& ranks) {
  Hash hash;
  hash.add(number);
  for (const int rank : ranks) hash.add(static_cast<uint64_t>(rank));
  return hash.value();
}

Result<Seat> seatAmong(const bootstrap::Membership& parent, const std::vector<int>& ranks, uint64_t number) {
  const auto leader = static_cast<size_t>(ranks.front());
  Seat seat;
  seat.id =
      bootstrap::deriveId(parent.id(), parent.members()[leader].service, discriminatorOf(number, ranks));
  seat.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), parent.rank()) - ranks.begin());
  seat.ranks = static_cast<int>(ranks.size());
  seat.members = ranks;
  seat.opened = seat.rank == 0;
  if (seat.opened) STRETTO_TRY(bootstrap::Service::openSession(seat.id));
  return seat;
}

}  // namespace

// All ranks find their seats by one exchange, in the order of the calls: `find` makes it.
FindSeat Children::seatByExchange(std::shared_ptr<void> keep, FindInTurn find) {
  // The ticket keeps what the queue, and this, are part of.
  auto ticket = std::make_shared<TurnTicket>(std::shared_ptr<Queue>(std::move(keep), &queue_));
  return [this, ticket = std::move(ticket), find = std::move(find),
          seating = ++seatings_](const bootstrap::StopCheck& stop) {
    std::vector<int> all(static_cast<size_t>(self_.ranks()));
    std::iota(all.begin(), all.end(), 0);
    auto seat = find(ticket->use(), [&] {
      if (stop) STRETTO_TRY(stop());
      return givenUpAmong(all, seating, 0);
    });
    // That they disagree all ranks find alike, by what the exchange has brought.
    const bool areAllNotified = seat.status().code == Code::kInvalidUsage;
    if (seat.ok()) {
      seat.value().seating = seating;
    } else if (!areAllNotified) {
      plane_.giveUpSeating(seating);
    }
    return seat;
  };
}

FindSeat Children::split(std::shared_ptr<void> keep, int colour, int key) {
  return seatByExchange(std::move(keep), [=, this](uint64_t turn, const bootstrap::StopCheck& stop) {
    return splitSeat(turn, colour, key, stop);
  });
}

Result<bootstrap::UniqueId> Children::name() {
  const auto id = bootstrap::Service::createSession();
  const std::lock_guard lock(namesMutex_);
  if (id.ok()) names_.push_back(id.value());
  return id;
}

void Children::endNames(const std::string& why) {
  std::vector<bootstrap::UniqueId> names;
  {
    const std::lock_guard lock(namesMutex_);
    names.swap(names_);
  }
  for (const bootstrap::UniqueId& id : names) bootstrap::Service::failSession(id, self_.rank(), why);
}

// A rank that joins from outside has no connection to this communicator. Until its ranks have joined the
// child too, only the rank that made the id can tell the joining one that they will not come.
FindSeat Children::grow(std::shared_ptr<void> keep, int ranks, const bootstrap::UniqueId* id) {
  std::optional<bootstrap::UniqueId> own;
  if (id != nullptr) {
    own = *id;
    const std::lock_guard lock(namesMutex_);
    std::erase(names_, *id);
  }
  return seatByExchange(std::move(keep), [=, this](uint64_t turn, const bootstrap::StopCheck& stop) {
    auto seat = growSeat(turn, ranks, own ? &*own : nullptr, stop);
    if (!seat.ok() && own) bootstrap::Service::failSession(*own, self_.rank(), lastError());
    return seat;
  });
}

// What all ranks want of a child. Every rank takes part when it is this call's turn, also if the child has
// been given up by then, and the exchange ends without it: the ranks stay in step.
Result<bootstrap::Membership::Parts> Children::exchangeWishes(Turn& turn, const char* what,
                                                              const MakeWish& wish,
                                                              const bootstrap::StopCheck& stop) {
  if (turn.mine() && !turn.holds()) return health_.whyLetGo();
  STRETTO_TRY(plane_.joined(what));
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  bootstrap::Membership& membership = plane_.membership();
  if (!turn.mine()) {
    turn.leave([=, &membership] {
      const std::string words = lastError();  // of the thread that comes to this, with an error of its own
      (void)membership.takePart(what, wish());
      setLastError(words);
    });
    return turn.why();
  }
  const auto exchange = membership.takePart(what, wish());
  if (!exchange.ok()) return exchange.status();
  return membership.await(exchange.value(), what, timeout.value(), stop);
}

// Ranks keep their numbers; the new ones come behind them.
Result<Seat> Children::growSeat(uint64_t number, int ranks, const bootstrap::UniqueId* id,
                                const bootstrap::StopCheck& stop) {
  GrowWish wish{ranks, id == nullptr ? 0U : 1U, {}};
  if (id != nullptr) wish.id = *id;
  Turn turn(queue_, number, stop);
  const auto wishes = exchangeWishes(
      turn, "grow", [=] { return bytesOf(wish); }, stop);
  if (!wishes.ok()) return wishes.status();
  const auto agreed = idOfGrowth(wishes.value(), self_.rank(), ranks);
  if (!agreed.ok()) return agreed.status();
  Seat seat;
  seat.rank = self_.rank();
  seat.ranks = ranks;
  seat.id = agreed.value();
  seat.named = id != nullptr;
  for (int rank = 0; rank < self_.ranks(); ++rank) seat.members.push_back(rank);
  return seat;
}

// A seat of no ranks for a rank without colour.
Result<Seat> Children::splitSeat(uint64_t number, int colour, int key, const bootstrap::StopCheck& stop) {
  Turn turn(queue_, number, stop);
  const auto wishes = exchangeWishes(
      turn, "split",
      [=, this] {
        return bytesOf(Wish{colour, key, split_});
      },
      stop);
  if (!wishes.ok()) return wishes.status();
  split_ = 1 + mostChildren(wishes.value());
  if (colour < 0) {
    Seat none;
    none.rank = -1;
    none.ranks = 0;
    return none;
  }
  return seatAmong(plane_.membership(), ranksOfColour(wishes.value(), colour), split_);
}

Result<FindSeat> Children::shrink(const std::vector<int>& leave) {
  const Hold hold(queue_);
  if (!hold.holds()) return health_.whyLetGo();
  STRETTO_TRY(plane_.joined("shrink"));
  std::vector<int> stay;
  for (int rank = 0; rank < self_.ranks(); ++rank) {
    if (!std::binary_search(leave.begin(), leave.end(), rank)) stay.push_back(rank);
  }
  // Who is left out is not told, and counts nothing: each set of ranks counts its own children.
  uint64_t number = 0;
  {
    const std::lock_guard lock(shrunkMutex_);
    number = ++shrunk_[stay];
  }
  const auto seat = seatAmong(plane_.membership(), stay, kShrunk | number);
  if (!seat.ok()) return seat.status();
  return FindSeat([seat = seat.value()](const bootstrap::StopCheck&) { return seat; });
}

Status Children::givenUpAmong(const std::vector<int>& members, uint64_t seating, uint64_t child) const {
  const int who = plane_.whoGaveUp(members, seating, child);
  if (who < 0) return kOkStatus;
  return failAbout(who, Code::kRemote,
                   "rank %d of the communicator that it is made of has given up its making; its own error "
                   "says why",
                   members[static_cast<size_t>(who)]);
}

// Asked by waits of the bootstrap, with a lock of theirs: so one lock at a time here, and none for nobody,
// which is what an exchange of this communicator asks for.
Status Children::lossAmong(const std::vector<int>& members) const {
  if (members.empty()) return kOkStatus;
  const std::vector<char> gone = plane_.whoHasGone(members);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    std::string words = health_.wordsOfLoss(members[rank]);
    if (words.empty() && gone[rank] == 0) continue;
    if (words.empty()) words = "rank " + std::to_string(members[rank]) + " has left it";
    return failAbout(static_cast<int>(rank), Code::kRemote,
                     "a rank of the communicator that it is made of will not come: %s", words.c_str());
  }
  return kOkStatus;
}

Status Origin::findSeat(const bootstrap::StopCheck& stop) {
  auto seat = findSeat_(stop);
  if (seat.ok()) seat_ = std::move(seat.value());
  return seat.status();
}

// A rank that is lost to the parent will not join the child any more. Once all have joined, a member may well
// have aborted the parent.
Status Origin::holds(uint64_t child, bool joined) const {
  if (parent_ == nullptr) return kOkStatus;
  const Health& health = parent_->health();
  if (health.state() == State::kAborted) {
    return fail(
        Code::kAborted, "%s",
        health.farewell("called ncclCommAbort for the communicator that this one is made of").c_str());
  }
  if (joined) return kOkStatus;
  STRETTO_TRY(parent_->children().lossAmong(seat_.members));
  return parent_->children().givenUpAmong(seat_.members, seat_.seating, child);
}

// Who leads a child's making may have died, or given up because of a loss that this rank has not heard of
// yet.
Status Origin::reasonOf(Status status, const std::function<bool()>& ended) const {
  const bool mayBeLoss = status.code == Code::kRemote || status.code == Code::kSystem;
  if (parent_ == nullptr || !mayBeLoss) return status;
  const Health& health = parent_->health();
  const std::string words = lastError();
  const uint64_t began = platform::monotonicNanoseconds();
  while (static_cast<double>(platform::monotonicNanoseconds() - began) * 1e-9 < kSecondHandSeconds) {
    STRETTO_TRY(parent_->children().lossAmong(seat_.members));
    if (ended() || health.state() == State::kAborted) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::string text;
  const Status parents = health.first(&text);
  if (parents.code != Code::kRemote) {
    setLastError(words);
    return status;
  }
  return failAbout(parents.peer, Code::kRemote, "%s (%s)", text.c_str(), words.c_str());
}

void Origin::giveUp(uint64_t child) const {
  if (parent_ != nullptr) parent_->children().giveUpChild(child);
}

}  // namespace stretto::communicator
