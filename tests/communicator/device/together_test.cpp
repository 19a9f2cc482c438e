// Which channels the operations of a group get: leastBlocks and giveChannels.
#include "communicator/device/together.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <vector>

namespace stretto::communicator {
namespace {

struct Asked {
  int wanted;
  int least = 1;
  bool shares = true;
};
constexpr Asked alone(int wanted) {
  return {wanted, wanted, false};
}

struct Given {
  int first;
  int blocks;
  bool operator==(const Given&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Given& given) {
  return out << given.blocks << " from " << given.first;
}

std::vector<Given> give(const std::vector<Asked>& asked, int channels) {
  std::vector<ChannelShare> group;
  for (const Asked& one : asked) group.push_back({one.shares, one.wanted});
  giveChannels(group, channels, [&](size_t place) { return asked[place].least; });
  std::vector<Given> given;
  for (const ChannelShare& one : group) given.push_back({one.first, one.blocks});
  return given;
}

using All = std::vector<Given>;

// ---- The fewest blocks ------------------------------------------------------------------------------------

TEST(LeastBlocks, AreTheFirstThatWillDo) {
  for (int whole = 1; whole <= 140; ++whole) {
    for (int least = 1; least <= whole; ++least) {
      EXPECT_EQ(leastBlocks(whole, [&](int blocks) { return blocks >= least; }), least) << "of " << whole;
    }
  }
}

TEST(LeastBlocks, AreAskedForOnceWhereOneWillDo) {
  int asked = 0;
  EXPECT_EQ(leastBlocks(132, [&](int) { return ++asked > 0; }), 1);
  EXPECT_EQ(asked, 1);
}

// ---- One turn ---------------------------------------------------------------------------------------------

TEST(GroupChannels, AreNoneForNoOperation) {
  EXPECT_EQ(give({}, 8), All{});
}

TEST(GroupChannels, AreAsManyAsAreWantedWhereThereAreEnough) {
  EXPECT_EQ(give({{5}}, 8), (All{{0, 5}}));
  EXPECT_EQ(give({{3}, {1}, {4}}, 8), (All{{0, 3}, {3, 1}, {4, 4}}));
  EXPECT_EQ(give({{3}, {1}, {2}}, 8), (All{{0, 3}, {3, 1}, {4, 2}}));
}

TEST(GroupChannels, OfEqualOperationsAreEqualAndFillAll) {
  EXPECT_EQ(give({{50}, {50}, {50}}, 132), (All{{0, 44}, {44, 44}, {88, 44}}));
  const auto many = give(std::vector<Asked>(16, {128}), 132);
  int next = 0;
  for (const Given& one : many) {
    EXPECT_EQ(one.first, next);
    EXPECT_TRUE(one.blocks == 8 || one.blocks == 9) << one.blocks;
    next += one.blocks;
  }
  EXPECT_EQ(next, 132);
}

TEST(GroupChannels, AreInProportionToWhatIsWanted) {
  EXPECT_EQ(give({{12}, {6}, {6}}, 12), (All{{0, 6}, {6, 3}, {9, 3}}));
  EXPECT_EQ(give({{1}, {100}, {1}}, 51), (All{{0, 1}, {1, 49}, {50, 1}}));
}

TEST(GroupChannels, AreNoFewerThanTheLeast) {
  EXPECT_EQ(give({{10, 9}, {10}, {10}}, 15), (All{{0, 9}, {9, 3}, {12, 3}}));
  // What the first takes from the others brings the second under its least, too.
  EXPECT_EQ(give({{20, 18}, {20, 6}, {20}}, 30), (All{{0, 18}, {18, 6}, {24, 6}}));
  EXPECT_EQ(give({{20, 20}, {20, 5}, {20}}, 30), (All{{0, 20}, {20, 5}, {25, 5}}));
  EXPECT_EQ(give({{8, 8}, {4, 4}, {4, 3}}, 15), (All{{0, 8}, {8, 4}, {12, 3}}));
}

TEST(GroupChannels, AreNotAskedForTheLeastWhereThereAreEnough) {
  std::vector<ChannelShare> group = {{true, 100}, {false, 132}, {true, 100}, {true, 33}};
  std::vector<size_t> asked;
  giveChannels(group, 132, [&](size_t place) {
    asked.push_back(place);
    return 1;
  });
  EXPECT_EQ(asked, (std::vector<size_t>{2, 3}));
}

// ---- Turns ------------------------------------------------------------------------------------------------

TEST(GroupChannels, OfOneThatIsAloneAreTheFirstAndThoseAfterItBeginAgain) {
  EXPECT_EQ(give({{2}, {3}, alone(8), {2}, {3}}, 8), (All{{0, 2}, {2, 3}, {0, 8}, {0, 2}, {2, 3}}));
  EXPECT_EQ(give({alone(4), alone(5), {2}, alone(1)}, 8), (All{{0, 4}, {0, 5}, {0, 2}, {0, 1}}));
  // Together with what is on the other side of it they would be short.
  EXPECT_EQ(give({{6}, alone(1), {6}}, 8), (All{{0, 6}, {0, 1}, {0, 6}}));
  EXPECT_EQ(give({{6}, {6}, alone(8), {6}}, 8), (All{{0, 4}, {4, 4}, {0, 8}, {0, 6}}));
}

TEST(GroupChannels, AreTakenInTurnsWhereTheLeastOfAllAreTooMany) {
  EXPECT_EQ(give({{4, 3}, {4, 3}, {4, 3}}, 8), (All{{0, 4}, {4, 4}, {0, 4}}));
  EXPECT_EQ(give({{8, 8}, {8, 8}, {2}}, 8), (All{{0, 8}, {0, 8}, {0, 2}}));
  EXPECT_EQ(give({{8, 7}, {8}, {8, 5}, {8, 2}}, 8), (All{{0, 7}, {7, 1}, {0, 5}, {5, 3}}));
}

TEST(GroupChannels, OfOneChannelAreThatChannel) {
  EXPECT_EQ(give({{1}, {1}, alone(1), {1}}, 1), (All{{0, 1}, {0, 1}, {0, 1}, {0, 1}}));
}

TEST(GroupChannels, OfManyOperationsTakeManyTurns) {
  constexpr size_t kMany = 100'000;
  const auto given = give(std::vector<Asked>(kMany, {255}), 132);
  for (size_t i = 0; i < kMany - kMany % 132; ++i) {
    ASSERT_EQ(given[i], (Given{static_cast<int>(i % 132), 1})) << i;
  }
}

// ---- Whatever the group -----------------------------------------------------------------------------------

struct Drawn {
  std::vector<Asked> asked;
  int channels;
};

Drawn draw(std::mt19937_64& random) {
  const auto upTo = [&](int most) { return 1 + static_cast<int>(random() % static_cast<uint64_t>(most)); };
  Drawn drawn;
  drawn.channels = upTo(random() % 2 == 0 ? 8 : 255);
  const int many = upTo(40), wanted = upTo(drawn.channels), least = upTo(wanted);
  for (int i = 0; i < many; ++i) {
    Asked one{upTo(wanted)};
    one.least = std::min(upTo(least), one.wanted);
    one.shares = random() % 8 != 0;
    drawn.asked.push_back(one);
  }
  return drawn;
}

// Those from `begin` to `end` are one turn.
void expectOneTurn(const Drawn& drawn, const std::vector<Given>& given, size_t begin, size_t end) {
  int wanted = 0, taken = 0;
  for (size_t i = begin; i < end; ++i) {
    ASSERT_EQ(given[i].first, taken) << i;
    ASSERT_GE(given[i].blocks, drawn.asked[i].least) << i;
    ASSERT_LE(given[i].blocks, drawn.asked[i].wanted) << i;
    wanted += drawn.asked[i].wanted;
    taken += given[i].blocks;
  }
  ASSERT_EQ(taken, std::min(wanted, drawn.channels)) << "from " << begin << " to " << end;
  // More than its least has nobody at the cost of one that wants as much.
  for (size_t i = begin; i < end; ++i) {
    for (size_t k = begin; k < end; ++k) {
      const bool yields = given[i].blocks > drawn.asked[i].least;
      if (!yields || drawn.asked[i].wanted > drawn.asked[k].wanted) continue;
      ASSERT_LE(given[i].blocks, given[k].blocks + 1) << i << " and " << k;
    }
  }
}

void expectGood(const Drawn& drawn, const std::vector<Given>& given) {
  const auto& asked = drawn.asked;
  for (size_t begin = 0, end = 0; begin < asked.size(); begin = end) {
    end = begin + 1;
    if (!asked[begin].shares) {
      ASSERT_EQ(given[begin], (Given{0, asked[begin].wanted})) << begin;
      continue;
    }
    int least = asked[begin].least;
    while (end < asked.size() && asked[end].shares && given[end].first != 0) least += asked[end++].least;
    ASSERT_NO_FATAL_FAILURE(expectOneTurn(drawn, given, begin, end));
    const bool goesOn = end < asked.size() && asked[end].shares;
    ASSERT_TRUE(!goesOn || least + asked[end].least > drawn.channels) << "a turn too many at " << end;
  }
}

TEST(GroupChannels, AreUsedUpAndSharedFairlyWhateverTheGroup) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 20'000; ++round) {
    const Drawn drawn = draw(random);
    const auto given = give(drawn.asked, drawn.channels);
    ASSERT_EQ(given.size(), drawn.asked.size());
    ASSERT_NO_FATAL_FAILURE(expectGood(drawn, given)) << "round " << round;
    ASSERT_EQ(given, give(drawn.asked, drawn.channels)) << "round " << round;
  }
}

// What was there before is not looked at: a communicator's ranks have different histories.
TEST(GroupChannels, DependOnNothingThatWasGivenBefore) {
  std::vector<ChannelShare> fresh = {{true, 30}, {true, 50}, {true, 60}, {false, 20}};
  std::vector<ChannelShare> used = fresh;
  for (ChannelShare& one : used) one.first = one.blocks = one.least = 77;
  const auto one = [](size_t) { return 1; };
  giveChannels(fresh, 100, one);
  giveChannels(used, 100, one);
  for (size_t i = 0; i < fresh.size(); ++i) {
    EXPECT_EQ(fresh[i].first, used[i].first);
    EXPECT_EQ(fresh[i].blocks, used[i].blocks);
  }
}

}  // namespace
}  // namespace stretto::communicator
