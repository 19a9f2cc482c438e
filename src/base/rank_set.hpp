// A set of ranks of one communicator, however many it has. Sets of the first 64 ranks need no memory beside
// the value. Plain values; as with any other, one thread at a time changes one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stretto {

class RankSet {
 public:
  RankSet() = default;
  static RankSet of(int rank) {
    RankSet set;
    set.add(rank);
    return set;
  }
  // Ranks 0 to `ranks` - 1.
  static RankSet below(int ranks) {
    RankSet set;
    const auto all = static_cast<size_t>(ranks);
    if (all > kBits) set.more_.assign((all - 1) / kBits, ~uint64_t{0});
    uint64_t& last = set.more_.empty() ? set.first_ : set.more_.back();
    if (all > kBits) set.first_ = ~uint64_t{0};
    if (all > 0) last = ~uint64_t{0} >> ((kBits - all % kBits) % kBits);
    return set;
  }
  // A bit for each of the ranks 0 to 63, 64 to 127 and so on; as words() has them.
  static RankSet ofWords(std::span<const uint64_t> words) {
    RankSet set;
    if (words.empty()) return set;
    set.first_ = words.front();
    set.more_.assign(words.begin() + 1, words.end());
    return set;
  }
  static RankSet ofBits(uint64_t bits) { return ofWords({&bits, 1}); }

  void add(int rank) {
    const auto at = static_cast<size_t>(rank);
    if (at >= kBits && at / kBits > more_.size()) more_.resize(at / kBits);
    word(at / kBits) |= uint64_t{1} << at % kBits;
  }
  bool has(int rank) const {
    const auto at = static_cast<size_t>(rank);
    return at / kBits <= more_.size() && (wordAt(at / kBits) >> at % kBits & 1) != 0;
  }
  bool empty() const { return next(-1) < 0; }
  int size() const {
    int all = std::popcount(first_);
    for (const uint64_t bits : more_) all += std::popcount(bits);
    return all;
  }
  // The smallest member above `rank`, or -1: for (int r = set.next(-1); r >= 0; r = set.next(r)).
  int next(int rank) const {
    const auto from = static_cast<size_t>(rank + 1);
    for (size_t at = from / kBits; at <= more_.size(); ++at) {
      const uint64_t bits = wordAt(at) & (at == from / kBits ? ~uint64_t{0} << from % kBits : ~uint64_t{0});
      if (bits != 0) return static_cast<int>(at * kBits) + std::countr_zero(bits);
    }
    return -1;
  }

  std::vector<uint64_t> words() const {
    std::vector<uint64_t> all{first_};
    all.insert(all.end(), more_.begin(), more_.end());
    return all;
  }
  // The set as one word, for shared memory that has a bit for each of the first 64 ranks. 0 if any member is
  // above 63: such a word then says nothing, rather than something of another rank.
  uint64_t bits() const {
    const bool fits = std::all_of(more_.begin(), more_.end(), [](uint64_t bits) { return bits == 0; });
    return fits ? first_ : 0;
  }

 private:
  static constexpr size_t kBits = 64;

  uint64_t& word(size_t at) { return at == 0 ? first_ : more_[at - 1]; }
  uint64_t wordAt(size_t at) const { return at == 0 ? first_ : more_[at - 1]; }

  uint64_t first_ = 0;
  std::vector<uint64_t> more_;  // of the ranks from 64 on
};

}  // namespace stretto
