// Network interfaces by NCCL_SOCKET_IFNAME's rules.
#include "platform/network_interface.hpp"

#include <gtest/gtest.h>

namespace stretto {
namespace {

TEST(NetworkInterface, ListsMatchAsNcclHasIt) {
  EXPECT_TRUE(interfaceMatches("eth", "eth0"));
  EXPECT_TRUE(interfaceMatches("ib,eth", "eth1"));
  EXPECT_FALSE(interfaceMatches("ib,eth", "lo"));
  EXPECT_TRUE(interfaceMatches("=eth0", "eth0"));
  EXPECT_FALSE(interfaceMatches("=eth", "eth0"));
  EXPECT_TRUE(interfaceMatches("=eth1,eth0", "eth0"));
  EXPECT_FALSE(interfaceMatches("^docker,lo", "docker0"));
  EXPECT_FALSE(interfaceMatches("^docker,lo", "lo"));
  EXPECT_TRUE(interfaceMatches("^docker,lo", "eth0"));
  EXPECT_TRUE(interfaceMatches("^=eth0", "eth01"));
  EXPECT_FALSE(interfaceMatches("^=eth0", "eth0"));
  EXPECT_FALSE(interfaceMatches(",", "eth0"));
}

TEST(NetworkInterface, TheLoopbackHasItsAddress) {
  const auto address = interfaceAddress("=lo");
  ASSERT_TRUE(address.ok()) << lastError();
  EXPECT_EQ(address.value(), loopbackAddress());
}

TEST(NetworkInterface, OneThatIsNotThereIsNamedWithThoseThatAre) {
  const auto address = interfaceAddress("=nothing0");
  EXPECT_EQ(address.status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("NCCL_SOCKET_IFNAME==nothing0"), std::string::npos) << lastError();
  EXPECT_NE(lastError().find("lo"), std::string::npos) << lastError();
}

}  // namespace
}  // namespace stretto
