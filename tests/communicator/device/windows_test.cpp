// What ranks say of their device windows in shared memory, and who waits for it: no GPU is touched.
#include "communicator/device/windows.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace stretto::communicator {
namespace {

constexpr int kRanks = 3;
constexpr int kOwn = 1;
constexpr double kShort = 0.02;

// As rank 1 of three sees it.
class WindowsOfPeers : public ::testing::Test {
 protected:
  WindowsOfPeers() {
    host_.operationLogOffset = 4096;
    for (int rank = 0; rank < kRanks; ++rank) {
      const size_t bytes = host_.windowOfferOffset() + sizeof(WindowOffer);
      auto region = memory::Region::create("test", bytes, 77 + static_cast<uint64_t>(rank));
      EXPECT_TRUE(region.ok()) << lastError();
      Peer peer;
      peer.window = region.value()->data();
      peer.rank = rank;
      host_.peers.push_back(peer);
      regions_.push_back(std::move(region.value()));
    }
    host_.region = regions_[kOwn];
    connections_.self.rank = kOwn;
    windows_ = std::make_unique<DeviceWindows>(connections_, host_, 1.0);
  }

  void say(uint32_t& word, uint32_t value) { std::atomic_ref(word).store(value); }
  void offerAll() {
    for (int rank = 0; rank < kRanks; ++rank) say(host_.windowOffer(rank).state, WindowOffer::kOffered);
  }
  void open(int rank, int whose) {
    std::atomic_ref(host_.windowOffer(rank).opened).fetch_or(uint64_t{1} << whose);
  }
  WindowHeader& header(int rank) { return host_.peers[static_cast<size_t>(rank)].header(); }

  std::vector<std::shared_ptr<memory::Region>> regions_;
  Connections host_;
  DeviceConnections connections_;
  std::unique_ptr<DeviceWindows> windows_;
};

TEST_F(WindowsOfPeers, AreWantedOnceSomebodyOffersOne) {
  EXPECT_FALSE(windows_->isWanted());
  EXPECT_TRUE(windows_->isMissing());
  say(host_.windowOffer(2).state, WindowOffer::kOffered);
  EXPECT_TRUE(windows_->isWanted());
  EXPECT_TRUE(windows_->isMissing());
  say(host_.windowOffer(0).state, WindowOffer::kOffered);
  say(host_.windowOffer(kOwn).state, WindowOffer::kOffered);
  EXPECT_FALSE(windows_->isMissing());
}

TEST_F(WindowsOfPeers, WhoLeavesWaitsUntilAllWithWindowsHaveItsOwn) {
  EXPECT_EQ(windows_->awaitOpened(kShort), -1);
  offerAll();
  EXPECT_EQ(windows_->awaitOpened(kShort), 0);
  open(0, 0);  // another's
  open(0, 2);
  EXPECT_EQ(windows_->awaitOpened(kShort), 0);
  open(0, kOwn);
  EXPECT_EQ(windows_->awaitOpened(kShort), 2);
  open(2, kOwn);
  EXPECT_EQ(windows_->awaitOpened(kShort), -1);
}

TEST_F(WindowsOfPeers, NobodyWaitsForThoseWhoNeedNothing) {
  offerAll();
  say(header(0).left, WindowHeader::kCallsOver);
  EXPECT_EQ(windows_->awaitOpened(kShort), 2);
  say(header(2).failed, 1);
  EXPECT_EQ(windows_->awaitOpened(kShort), -1);
}

TEST_F(WindowsOfPeers, AnAbortEndsTheWait) {
  offerAll();
  say(header(kOwn).abort, 1);
  EXPECT_EQ(windows_->awaitOpened(60), 0);
}

}  // namespace
}  // namespace stretto::communicator
