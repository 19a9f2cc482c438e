// Which ranks share a host, and how large the teams of neighbours are.
#include "links/net/host_map.hpp"

#include <gtest/gtest.h>

namespace stretto::links::net {
namespace {

TEST(HostMap, TeamsAreNeighboursOfOneHostEverywhere) {
  EXPECT_EQ(HostMap().largestTeam(), 0);
  EXPECT_EQ(HostMap({0, 0, 0}).largestTeam(), 3);
  EXPECT_EQ(HostMap({0, 0, 1, 1}).largestTeam(), 2);
  EXPECT_EQ(HostMap({0, 1, 0, 1}).largestTeam(), 1) << "no two neighbours are of one host";
  EXPECT_EQ(HostMap({0, 0, 0, 0, 1, 1}).largestTeam(), 2);
  EXPECT_EQ(HostMap({0, 0, 0, 1, 1}).largestTeam(), 1);
  EXPECT_EQ(HostMap({0, 0, 1, 1, 0, 0}).largestTeam(), 2) << "a host may have several teams";
}

}  // namespace
}  // namespace stretto::links::net
