#include "bootstrap/membership.hpp"

#include <algorithm>
#include <mutex>
#include <random>

#include "bootstrap/ranks.hpp"
#include "harness/watchdog.hpp"

namespace stretto::bootstrap {
namespace {

using namespace testing;
using stretto::testing::Watchdog;
using Made = Result<std::unique_ptr<Membership>>;

void exchangeTwice(Membership& membership, int rank, int ranks) {
  for (const char* name : {"first", "second"}) {
    const auto all = membership.exchange(name, bytesOf(name + std::to_string(rank)), 20);
    ASSERT_TRUE(all.ok()) << lastError();
    ASSERT_EQ(static_cast<int>(all.value().size()), ranks);
    for (int peer = 0; peer < ranks; ++peer) {
      EXPECT_EQ(all.value()[static_cast<size_t>(peer)], bytesOf(name + std::to_string(peer)));
    }
  }
}

class ManyRanks : public ::testing::TestWithParam<int> {};

TEST_P(ManyRanks, JoinInAnyOrderAndExchange) {
  const Watchdog watchdog("join and exchange", 60);
  const int ranks = GetParam();
  std::vector<int> order(static_cast<size_t>(ranks));
  for (int i = 0; i < ranks; ++i) order[static_cast<size_t>(i)] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(ranks)));
  const UniqueId id = newId();
  asThreads(ranks, [&](int slot) {
    const int rank = order[static_cast<size_t>(slot)];
    JoinOptions options;
    options.version = "1.2.3";
    const Made made = Membership::join(id, rank, ranks, 20, nullptr, options);
    ASSERT_TRUE(made.ok()) << lastError();
    Membership& membership = *made.value();
    EXPECT_EQ(membership.rank(), rank);
    EXPECT_EQ(membership.ranks(), ranks);
    for (int peer = 0; peer < ranks; ++peer) {
      const MemberInfo& info = membership.members()[static_cast<size_t>(peer)];
      EXPECT_EQ(info.rank, peer);
      EXPECT_EQ(info.pid, static_cast<uint32_t>(::getpid()));
      EXPECT_EQ(info.version, "1.2.3");
      EXPECT_FALSE(info.host.empty());
      EXPECT_NE(info.service.port, 0);
    }
    exchangeTwice(membership, rank, ranks);
  });
}
INSTANTIATE_TEST_SUITE_P(Membership, ManyRanks, ::testing::Values(1, 2, 3, 4, 7, 16, 64));

}  // namespace
}  // namespace stretto::bootstrap
