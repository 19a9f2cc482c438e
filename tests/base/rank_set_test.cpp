// Sets of ranks, below and above the 64 that one word holds.
#include "base/rank_set.hpp"

#include <gtest/gtest.h>

#include <set>

namespace stretto {
namespace {

std::set<int> membersOf(const RankSet& set) {
  std::set<int> members;
  for (int rank = set.next(-1); rank >= 0; rank = set.next(rank)) members.insert(rank);
  return members;
}

TEST(RankSet, HoldsWhatWasAdded) {
  RankSet set;
  EXPECT_TRUE(set.empty());
  const std::set<int> ranks = {0, 1, 63, 64, 127, 128, 511};
  for (const int rank : ranks) set.add(rank);
  EXPECT_EQ(membersOf(set), ranks);
  EXPECT_EQ(set.size(), 7);
  for (int rank = 0; rank < 600; ++rank) EXPECT_EQ(set.has(rank), ranks.count(rank) == 1) << rank;
}

TEST(RankSet, BelowIsAllRanksAndNoMore) {
  EXPECT_TRUE(RankSet::below(0).empty());
  for (const int ranks : {1, 2, 63, 64, 65, 127, 128, 129, 512}) {
    const RankSet set = RankSet::below(ranks);
    EXPECT_EQ(set.size(), ranks);
    EXPECT_FALSE(set.has(ranks)) << ranks;
    EXPECT_TRUE(set.has(ranks - 1)) << ranks;
  }
}

// A word of shared memory holds the first 64 ranks: of others it says nothing rather than something wrong.
TEST(RankSet, BitsAreOfTheFirst64OrNone) {
  RankSet set = RankSet::of(3);
  set.add(63);
  EXPECT_EQ(set.bits(), uint64_t{1} << 63 | 8);
  set.add(64);
  EXPECT_EQ(set.bits(), 0u);
  EXPECT_EQ(RankSet::of(67).bits(), 0u);
}

TEST(RankSet, TravelsAsWords) {
  for (const int rank : {0, 63, 64, 200}) {
    RankSet set = RankSet::of(rank);
    set.add(5);
    EXPECT_EQ(membersOf(RankSet::ofWords(set.words())), membersOf(set));
  }
  EXPECT_EQ(RankSet().words().size(), 1u);
}

}  // namespace
}  // namespace stretto
