// Split, shrink and grow: communicators made of another's ranks. The unique id of a split or a shrink is
// derived from the parent's, so no rank has to be told it, and the child's first rank hosts the rendezvous.
// Who joins a communicator that grows is told the id by its user.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "base/hash.hpp"
#include "base/parameters.hpp"
#include "bootstrap/service.hpp"
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
uint64_t mostChildren(const std::vector<std::vector<uint8_t>>& blobs) {
  uint64_t most = 0;
  for (const auto& blob : blobs) {
    Wish wish{};
    if (blob.size() == sizeof wish) std::memcpy(&wish, blob.data(), sizeof wish);
    most = std::max(most, wish.children);
  }
  return most;
}

// Ranks of one colour, by key and then by rank.
std::vector<int> ranksOfColour(const std::vector<std::vector<uint8_t>>& blobs, int colour) {
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
Result<bootstrap::UniqueId> idOfGrowth(const std::vector<std::vector<uint8_t>>& blobs, int rank, int ranks) {
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

Status Communicator::connected(const char* what) const {
  if (membership_ != nullptr) return kOkStatus;
  return stretto::fail(Code::kInvalidUsage,
                       "rank %d: nothing to %s: this communicator never met its other ranks", rank_, what);
}

// All ranks find their seats by one exchange, in the order of the calls: `find` makes it.
FindSeat Communicator::seatByExchange(FindInTurn find) {
  return [ticket = std::make_shared<TurnTicket>(shared_from_this()), find = std::move(find),
          seating = ++seatings_](const bootstrap::StopCheck& stop) {
    Communicator& self = ticket->owner();
    std::vector<int> all(static_cast<size_t>(self.ranks_));
    std::iota(all.begin(), all.end(), 0);
    auto seat = find(self, ticket->use(), [&] {
      if (stop) STRETTO_TRY(stop());
      return self.givenUpAmong(all, seating, 0);
    });
    // That they disagree all ranks find alike, by what the exchange has brought.
    const bool areAllNotified = seat.status().code == Code::kInvalidUsage;
    if (seat.ok()) {
      seat.value().seating = seating;
    } else if (!areAllNotified) {
      self.giveUpSeating(seating);
    }
    return seat;
  };
}

FindSeat Communicator::split(int colour, int key) {
  return seatByExchange([=](Communicator& self, uint64_t turn, const bootstrap::StopCheck& stop) {
    return self.splitSeat(turn, colour, key, stop);
  });
}

FindSeat Communicator::grow(int ranks, const bootstrap::UniqueId* id) {
  std::optional<bootstrap::UniqueId> own;
  if (id != nullptr) own = *id;
  return seatByExchange([=](Communicator& self, uint64_t turn, const bootstrap::StopCheck& stop) {
    return self.growSeat(turn, ranks, own ? &*own : nullptr, stop);
  });
}

// What all ranks want of a child. Every rank takes part when it is this call's turn, also if the child has
// been given up by then, and the exchange ends without it: the ranks stay in step.
Result<bootstrap::Membership::Parts> Communicator::exchangeWishes(Turn& turn, const char* what,
                                                                  const MakeWish& wish,
                                                                  const bootstrap::StopCheck& stop) {
  if (turn.mine() && !turn.holds()) return usable();
  STRETTO_TRY(connected(what));
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  if (!turn.mine()) {
    turn.leave([=, this] {
      const std::string words = lastError();  // of this thread, which does something else
      (void)membership_->takePart(what, wish());
      setLastError(words);
    });
    if (stop) STRETTO_TRY(stop());
    STRETTO_TRY(mayWait());
    return stretto::fail(Code::kAborted, "rank %d: given up before the %s had its turn", rank_, what);
  }
  const auto exchange = membership_->takePart(what, wish());
  if (!exchange.ok()) return exchange.status();
  return membership_->await(exchange.value(), what, timeout.value(), stop);
}

// Ranks keep their numbers; the new ones come behind them.
Result<Seat> Communicator::growSeat(uint64_t number, int ranks, const bootstrap::UniqueId* id,
                                    const bootstrap::StopCheck& stop) {
  GrowWish wish{ranks, id == nullptr ? 0U : 1U, {}};
  if (id != nullptr) wish.id = *id;
  Turn turn(*this, number, stop);
  const auto wishes = exchangeWishes(
      turn, "grow", [=] { return bytesOf(wish); }, stop);
  if (!wishes.ok()) return wishes.status();
  const auto agreed = idOfGrowth(wishes.value(), rank_, ranks);
  if (!agreed.ok()) return agreed.status();
  Seat seat;
  seat.rank = rank_;
  seat.ranks = ranks;
  seat.id = agreed.value();
  for (int rank = 0; rank < ranks_; ++rank) seat.members.push_back(rank);
  return seat;
}

// A seat of no ranks for a rank without colour.
Result<Seat> Communicator::splitSeat(uint64_t number, int colour, int key, const bootstrap::StopCheck& stop) {
  Turn turn(*this, number, stop);
  const auto wishes = exchangeWishes(
      turn, "split",
      [=, this] {
        return bytesOf(Wish{colour, key, children_});
      },
      stop);
  if (!wishes.ok()) return wishes.status();
  children_ = 1 + mostChildren(wishes.value());
  if (colour < 0) {
    Seat none;
    none.rank = -1;
    none.ranks = 0;
    return none;
  }
  return seatAmong(*membership_, ranksOfColour(wishes.value(), colour), children_);
}

Result<FindSeat> Communicator::shrink(const std::vector<int>& leave) {
  const Hold hold(*this);
  if (!hold.holds()) return usable();
  STRETTO_TRY(connected("shrink"));
  std::vector<int> stay;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!std::binary_search(leave.begin(), leave.end(), rank)) stay.push_back(rank);
  }
  // Who is left out is not told, and counts nothing: each set of ranks counts its own children.
  uint64_t number = 0;
  {
    const std::lock_guard lock(shrunkMutex_);
    number = ++shrunk_[stay];
  }
  const auto seat = seatAmong(*membership_, stay, kShrunk | number);
  if (!seat.ok()) return seat.status();
  return FindSeat([seat = seat.value()](const bootstrap::StopCheck&) { return seat; });
}

// The first step of a child's making.
Status Communicator::takeSeat() {
  if (seated()) return kOkStatus;
  auto seat = origin_.findSeat([this] { return mayWait(); });
  if (!seat.ok()) return seat.status();
  origin_.seat = std::move(seat.value());
  rank_ = origin_.seat.rank;
  ranks_ = origin_.seat.ranks;
  id_ = origin_.seat.id;
  identity_ = identityOf(id_);
  seated_.store(true, std::memory_order_release);
  return kOkStatus;
}

// Whether this child's parent lets it wait on. A rank that is lost to the parent will not join the child any
// more. Once all have joined, the child hears of losses by itself, and a member may well have aborted the
// parent.
Status Communicator::parentHolds() const {
  if (origin_.parent == nullptr) return kOkStatus;
  if (origin_.parent->state() == State::kAborted) {
    return stretto::fail(Code::kAborted, "%s",
                         origin_.parent
                             ->farewell("called ncclCommAbort for the communicator that this one is made "
                                        "of")
                             .c_str());
  }
  if (membership_ != nullptr) return kOkStatus;
  STRETTO_TRY(origin_.parent->lossAmong(origin_.seat.members));
  return origin_.parent->givenUpAmong(origin_.seat.members, origin_.seat.seating, identity_);
}

// The exchange that seats the ranks may succeed on some ranks and fail on others, when a rank dies meanwhile;
// and a child may be aborted, or turn out to be impossible on one rank, before that one has joined it. Who
// has not joined the child cannot tell it there, and says so in its window of the parent.
void Communicator::giveUpSeating(uint64_t seating) {
  const std::lock_guard lock(membershipMutex_);  // with a membership there are windows
  WindowHeader* const header = header_.load();
  if (membership_ == nullptr || header == nullptr) return;
  std::atomic_ref(header->seatingsGivenUp[seating % WindowHeader::kGivenUp])
      .store(seating, std::memory_order_release);
  if (isSpread()) showNow(0);
}

void Communicator::giveUpChild(uint64_t child) {
  const std::lock_guard lock(membershipMutex_);
  WindowHeader* const header = header_.load();
  if (membership_ == nullptr || header == nullptr) return;
  std::atomic_ref(header->childrenGivenUp[childrenGivenUp_++ % WindowHeader::kGivenUp])
      .store(child, std::memory_order_release);
  if (isSpread()) showNow(0);
}

// `seating`: 0 if there was none; `child`: the identity of that in which this rank has its seat, or 0.
Status Communicator::givenUpAmong(const std::vector<int>& members, uint64_t seating, uint64_t child) const {
  const std::unique_lock lock(membershipMutex_, std::try_to_lock);
  if (!lock.owns_lock() || membership_ == nullptr || connections_.peers.empty()) return kOkStatus;
  const auto holds = [](const uint64_t& word, uint64_t value) {
    return value != 0 &&
           std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire) == value;
  };
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const WindowHeader& theirs = connections_.peers[static_cast<size_t>(members[rank])].header();
    const bool gaveUp = holds(theirs.seatingsGivenUp[seating % WindowHeader::kGivenUp], seating) ||
                        std::any_of(std::begin(theirs.childrenGivenUp), std::end(theirs.childrenGivenUp),
                                    [&](const uint64_t& word) { return holds(word, child); });
    if (members[rank] == rank_ || !gaveUp) continue;
    return stretto::failAbout(static_cast<int>(rank), Code::kRemote,
                              "rank %d of the communicator that it is made of has given up its making; its "
                              "own error says why",
                              members[rank]);
  }
  return kOkStatus;
}

// Who leads a child's making may have died, or given up because of a loss that this rank has not heard of
// yet: what the network says then is a consequence, and the parent names the cause in a moment.
Status Communicator::reasonOfParent(Status status) const {
  const bool mayBeLoss = status.code == Code::kRemote || status.code == Code::kSystem;
  if (origin_.parent == nullptr || !mayBeLoss) return status;
  const std::string words = lastError();
  const uint64_t began = platform::monotonicNanoseconds();
  while (static_cast<double>(platform::monotonicNanoseconds() - began) * 1e-9 < kSecondHandSeconds) {
    STRETTO_TRY(origin_.parent->lossAmong(origin_.seat.members));
    if (abort_.load() != 0 || origin_.parent->state() == State::kAborted) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::string text;
  const Status parents = origin_.parent->error(&text);
  if (parents.code != Code::kRemote) {
    setLastError(words);
    return status;
  }
  return stretto::failAbout(parents.peer, Code::kRemote, "%s (%s)", text.c_str(), words.c_str());
}

// Asked by waits of the bootstrap, with a lock of theirs: so one lock at a time here, and none for nobody,
// which is what an exchange of this communicator asks for.
Status Communicator::lossAmong(const std::vector<int>& members) const {
  if (members.empty()) return kOkStatus;
  std::vector<char> gone(members.size());
  {
    const std::unique_lock life(membershipMutex_,
                                std::try_to_lock);  // not while this communicator is being left
    const bool knows = life.owns_lock() && membership_ != nullptr;
    for (size_t i = 0; knows && i < members.size(); ++i) gone[i] = membership_->hasGone(members[i]) ? 1 : 0;
  }
  std::lock_guard lock(errorMutex_);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const auto found = lost_.find(members[rank]);
    if (found == lost_.end() && gone[rank] == 0) continue;
    const std::string left = "rank " + std::to_string(members[rank]) + " has left it";
    return stretto::failAbout(static_cast<int>(rank), Code::kRemote,
                              "a rank of the communicator that it is made of will not come: %s",
                              found == lost_.end() ? left.c_str() : found->second.c_str());
  }
  return kOkStatus;
}

}  // namespace stretto::communicator
