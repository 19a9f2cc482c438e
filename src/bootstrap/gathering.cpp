#include "bootstrap/gathering.hpp"

#include <utility>

namespace stretto::bootstrap {

Gathering::Round& Gathering::open(const Exchange& part, int rank) {
  if (part.sequence > newest_) {
    newest_ = part.sequence;
    rounds_.erase(rounds_.begin(), rounds_.lower_bound(newest_ - 1));
  }
  Round& round = rounds_[part.sequence];
  if (round.has.empty()) {
    round.name = part.name;
    round.firstRank = rank;
    round.has.resize(ranks_);
    round.blobs.resize(ranks_);
  }
  return round;
}

SharedBytes Gathering::failAll(uint32_t sequence, int peer, std::string text) {
  failed_ = true;
  rounds_.clear();
  return encode(ExchangeFailure{sequence, Refusal{Code::kInvalidUsage, peer, std::move(text)}});
}

bool Gathering::contribute(int rank, const Exchange& part, SharedBytes& news, std::string& complaint) {
  Member& member = members_[static_cast<size_t>(rank)];
  const bool mustBeFirst = fromTheStart_ && !member.heard;
  if (part.sequence < member.next || (mustBeFirst && part.sequence != 0)) {
    complaint =
        "rank " + std::to_string(rank) + " sent exchange " + std::to_string(part.sequence) + " out of turn";
    return false;
  }
  member.heard = true;
  member.next = uint64_t{part.sequence} + 1;
  if (failed_ || member.next < newest_) {
    return true;  // everybody has been told, or has the result
  }
  Round& round = open(part, rank);
  if (part.name != round.name) {
    news = failAll(part.sequence, rank,
                   "the ranks disagree about exchange " + std::to_string(part.sequence) + ": rank " +
                       std::to_string(round.firstRank) + " calls \"" + round.name + "\", but rank " +
                       std::to_string(rank) + " calls \"" + part.name + "\"");
    return true;
  }
  round.bytes += part.blob.size();
  if (round.bytes > kMaxExchangeBytes) {
    news = failAll(part.sequence, rank,
                   "exchange \"" + round.name + "\" carries more than " + std::to_string(kMaxExchangeBytes) +
                       " bytes over all ranks");
    return true;
  }
  round.has[static_cast<size_t>(rank)] = true;
  round.blobs[static_cast<size_t>(rank)].assign(part.blob.begin(), part.blob.end());
  if (++round.contributed == ranks_) {
    news = encodeExchangeResult(part.sequence, round.blobs);
    rounds_.erase(part.sequence);
  }
  return true;
}

std::vector<int> Gathering::missing(int rank) const {
  const Member& asks = members_[static_cast<size_t>(rank)];
  const auto round = rounds_.find(asks.heard ? static_cast<uint32_t>(asks.next - 1) : newest_);
  std::vector<int> absent;
  for (uint32_t peer = 0; round != rounds_.end() && peer < ranks_; ++peer) {
    if (!round->second.has[peer]) absent.push_back(static_cast<int>(peer));
  }
  return absent;
}

}  // namespace stretto::bootstrap
