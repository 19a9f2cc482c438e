#include "platform/kept_memory.hpp"

#include <gtest/gtest.h>

namespace stretto::platform {
namespace {

using Kind = KeptBlock::Kind;

class KeptMemoryTest : public ::testing::Test {
 protected:
  std::byte* block(size_t index) { return &bytes_[index]; }
  void allocate(size_t index, size_t bytes, int device = 0, Kind kind = Kind::kDevice) {
    kept_.allocated({device, kind, block(index), bytes});
  }

  KeptMemory kept_;
  std::byte bytes_[8];
};

TEST_F(KeptMemoryTest, NothingIsKeptWhileNobodyShares) {
  allocate(0, 100);
  EXPECT_FALSE(kept_.keep(block(0)));
  EXPECT_EQ(kept_.take(0, Kind::kDevice, 100), nullptr);
}

TEST_F(KeptMemoryTest, WhatIsKeptServesTheSameDeviceKindAndSizeOnce) {
  kept_.share(0);
  allocate(0, 100);
  ASSERT_TRUE(kept_.keep(block(0)));
  EXPECT_EQ(kept_.take(1, Kind::kDevice, 100), nullptr);
  EXPECT_EQ(kept_.take(0, Kind::kPinned, 100), nullptr);
  EXPECT_EQ(kept_.take(0, Kind::kDevice, 101), nullptr);
  EXPECT_EQ(kept_.take(0, Kind::kDevice, 100), block(0));
  EXPECT_EQ(kept_.take(0, Kind::kDevice, 100), nullptr);
  EXPECT_TRUE(kept_.keep(block(0))) << "what was handed out again is known";
}

TEST_F(KeptMemoryTest, TheLastSharerGetsWhatIsKeptOfItsDevice) {
  kept_.share(0);
  kept_.share(0);
  kept_.share(1);
  allocate(0, 100);
  allocate(1, 200, 0, Kind::kPinned);
  allocate(2, 100, 1);
  allocate(3, 100);
  ASSERT_TRUE(kept_.keep(block(0)));
  ASSERT_TRUE(kept_.keep(block(1)));
  ASSERT_TRUE(kept_.keep(block(2)));
  EXPECT_TRUE(kept_.unshare(0).empty());
  const auto gone = kept_.unshare(0);
  ASSERT_EQ(gone.size(), 2u);
  EXPECT_EQ(gone[0].address, block(0));
  EXPECT_EQ(gone[1].address, block(1));
  EXPECT_EQ(gone[1].kind, Kind::kPinned);
  EXPECT_FALSE(kept_.keep(block(3))) << "nobody shares any more";
  EXPECT_EQ(kept_.take(1, Kind::kDevice, 100), block(2));
}

TEST_F(KeptMemoryTest, WhatIsNotKnownIsNotKept) {
  kept_.share(0);
  EXPECT_FALSE(kept_.keep(block(5)));
}

}  // namespace
}  // namespace stretto::platform
