// Split and shrink: communicators made of another's ranks. The child's unique id is derived from the
// parent's, so no rank has to be told it; the child's first rank hosts the rendezvous.
#include <algorithm>
#include <cstring>

#include "base/parameters.hpp"
#include "bootstrap/service.hpp"
#include "communicator/communicator.hpp"

namespace stretto::communicator {
namespace {

struct Wish {
  int32_t colour;
  int32_t key;
  uint64_t children;  // made so far, as this rank counts
};
static_assert(std::has_unique_object_representations_v<Wish>, "name the padding of what travels");

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

// Children of split and of shrink are numbered apart.
constexpr uint64_t kShrunk = uint64_t{1} << 63;

// What tells this child from every other child of the same parent.
uint64_t discriminatorOf(uint64_t number, const std::vector<int>& ranks) {
  uint64_t hash = number * 0x9e3779b97f4a7c15u + 1;
  for (const int rank : ranks) hash = (hash ^ static_cast<uint64_t>(rank)) * 0xff51afd7ed558ccdu + 7;
  return hash;
}

Result<std::shared_ptr<Communicator>> makeChild(const bootstrap::Membership& parent,
                                                const std::vector<int>& ranks, uint64_t number,
                                                Config config) {
  const auto leader = static_cast<size_t>(ranks.front());
  const auto id =
      bootstrap::deriveId(parent.id(), parent.members()[leader].service, discriminatorOf(number, ranks));
  const auto place = std::find(ranks.begin(), ranks.end(), parent.rank()) - ranks.begin();
  if (place == 0) STRETTO_TRY(bootstrap::Service::openSession(id));
  return std::make_shared<Communicator>(static_cast<int>(place), static_cast<int>(ranks.size()), id,
                                        std::move(config));
}

}  // namespace

Status Communicator::connected(const char* what) const {
  if (membership_ != nullptr) return kOkStatus;
  return stretto::fail(Code::kInvalidUsage,
                       "rank %d: nothing to %s: this communicator never met its other ranks", rank_, what);
}

Result<std::shared_ptr<Communicator>> Communicator::split(int colour, int key, Config config) {
  const auto timeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  if (!timeout.ok()) return timeout.status();
  STRETTO_TRY(connected("split"));
  const Wish wish{colour, key, children_};
  auto wishes =
      membership_->exchange("split", {reinterpret_cast<const uint8_t*>(&wish), sizeof wish}, timeout.value());
  if (!wishes.ok()) return wishes.status();
  children_ = 1 + mostChildren(wishes.value());
  const uint64_t number = children_;
  if (colour < 0) return std::shared_ptr<Communicator>();
  return makeChild(*membership_, ranksOfColour(wishes.value(), colour), number, std::move(config));
}

Result<std::shared_ptr<Communicator>> Communicator::shrink(const std::vector<int>& leave, Config config) {
  STRETTO_TRY(connected("shrink"));
  std::vector<int> stay;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!std::binary_search(leave.begin(), leave.end(), rank)) stay.push_back(rank);
  }
  // Who is left out is not told, and counts nothing: each set of ranks counts its own children.
  const uint64_t number = ++shrunk_[stay];
  return makeChild(*membership_, stay, kShrunk | number, std::move(config));
}

}  // namespace stretto::communicator
