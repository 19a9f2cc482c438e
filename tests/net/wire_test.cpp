#include "net/tcp/wire.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "net/nets.hpp"

namespace stretto::net::tcp {
namespace {

TEST(NetWire, AHandleSaysWhatItWasMadeOf) {
  Rendezvous where;
  for (size_t i = 0; i < where.key.size(); ++i) where.key[i] = static_cast<uint8_t>(i + 1);
  where.addresses = {net::testing::loopback(1).address, net::testing::loopback6().address};
  where.addresses[0].port = 4711;
  where.addresses[1].port = 65535;
  Rendezvous read;
  ASSERT_TRUE(decode(encode(where), read));
  EXPECT_EQ(read.key, where.key);
  EXPECT_EQ(read.addresses, where.addresses);
  where.addresses.assign(20, net::testing::loopback6().address);
  ASSERT_TRUE(decode(encode(where), read));
  EXPECT_EQ(read.addresses.size(), 4u);  // as many as fit
  where.addresses.assign(20, net::testing::loopback(1).address);
  ASSERT_TRUE(decode(encode(where), read));
  EXPECT_EQ(read.addresses.size(), kMostAddresses);
}

TEST(NetWire, TheSetOfCompleteMessages) {
  std::mt19937 random(1);
  CompleteSet ours;
  CompleteSet theirs;
  std::set<uint64_t> truth;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t number = ours.below() + random() % kMostApart;
    ASSERT_TRUE(ours.canHold(number));
    ours.add(number);
    truth.insert(number);
    if (random() % 5 != 0) theirs.merge(ours.record());
    const uint64_t probe = ours.below() + random() % (2 * kMostApart);
    ASSERT_EQ(ours.has(probe), truth.count(probe) == 1);
    ASSERT_FALSE(theirs.has(probe) && !ours.has(probe));
  }
  const Record old = CompleteSet().record();
  theirs.merge(ours.record());
  theirs.merge(old);
  EXPECT_EQ(theirs.below(), ours.below());
  for (uint64_t number = 0; number < ours.below() + kMostApart; ++number) {
    ASSERT_EQ(theirs.has(number), truth.count(number) == 1) << number;
  }
  EXPECT_GT(ours.below(), 100u);
}

}  // namespace
}  // namespace stretto::net::tcp
