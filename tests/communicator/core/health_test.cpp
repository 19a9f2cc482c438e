#include "communicator/core/health.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "primitives/call_record.hpp"

namespace stretto::communicator {
namespace {

// A rank that has met nobody, so that nobody is told.
class HealthOfARank : public ::testing::Test {
 protected:
  const bootstrap::UniqueId id_{};
  Identity self_{0, 2, &id_, {}};
  const Connections connections_{};
  ControlPlane plane_{self_, connections_};
  observe::FlightRecorder flight_;
  std::vector<uint32_t> words_;  // that have ended waits
  Health health_{self_, plane_, flight_, [this](uint32_t word) { words_.push_back(word); }};
};

TEST_F(HealthOfARank, StatesOnlyMoveOn) {
  EXPECT_FALSE(health_.isReady());
  EXPECT_TRUE(health_.advance(State::kReady));
  EXPECT_TRUE(health_.isReady());
  EXPECT_TRUE(health_.usable().ok());
  EXPECT_TRUE(health_.advance(State::kFailed));
  EXPECT_FALSE(health_.advance(State::kReady));
  EXPECT_FALSE(health_.advance(State::kFailed));
  EXPECT_EQ(health_.state(), State::kFailed);
  EXPECT_FALSE(health_.isReady());
}

TEST_F(HealthOfARank, TheFirstErrorStays) {
  EXPECT_TRUE(health_.first().ok());
  health_.markBroken({Code::kTimeout, 1}, State::kFailed, "the first");
  health_.markBroken({Code::kRemote, 0}, State::kAborted, "its consequence");
  std::string text;
  const Status first = health_.first(&text);
  EXPECT_EQ(first.code, Code::kTimeout);
  EXPECT_EQ(first.peer, 1);
  EXPECT_EQ(text, "the first");
  EXPECT_EQ(health_.state(), State::kAborted);
}

TEST_F(HealthOfARank, TheAbortWordIsWrittenOnce) {
  EXPECT_TRUE(health_.whyAborted().ok());
  health_.raiseAbort({Code::kRemote, 1});
  health_.raiseAbort({Code::kAborted});
  const uint32_t first = abortWord({Code::kRemote, 1});
  EXPECT_EQ(health_.abortWord().load(), first);
  EXPECT_EQ(words_, std::vector<uint32_t>(2, first)) << "waits end for the first reason, however often";
  EXPECT_EQ(health_.whyAborted().code, Code::kRemote);
}

// Who is lost is known before what the loss ends: the first operation that it ends is added, once.
TEST_F(HealthOfARank, ALossNamesOneOperation) {
  health_.noteLost(1, "rank 0 lost rank 1");
  health_.noteLost(1, "again");
  EXPECT_EQ(health_.wordsOfLoss(1), "rank 0 lost rank 1");
  EXPECT_EQ(health_.wordsOfLoss(0), "");
  EXPECT_EQ(health_.lostRanks(), std::vector<int>{1});
  health_.markBroken({Code::kRemote, 1}, State::kFailed, "rank 0 lost rank 1");
  EXPECT_EQ(health_.nameOperation("a did not finish"), "rank 0 lost rank 1; a did not finish");
  EXPECT_EQ(health_.nameOperation("b was not started"), "rank 0 lost rank 1; a did not finish");
}

// A peer has given up because of a third rank, of which this one hears a little later.
TEST_F(HealthOfARank, AReasonThatComesSoonIsAwaited) {
  health_.advance(State::kReady);
  std::thread tells([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    health_.strike({Code::kRemote, 1}, "rank 0 lost rank 1");
  });
  const Status why = health_.reasonSoon();
  const std::string words = lastError();
  tells.join();
  EXPECT_EQ(why.code, Code::kRemote);
  EXPECT_EQ(why.peer, 1);
  EXPECT_EQ(words, "rank 0 lost rank 1");
}

TEST_F(HealthOfARank, AReasonThatDoesNotComeIsNotAwaitedForLong) {
  health_.advance(State::kReady);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(health_.reasonSoon().ok());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took.count(), kSecondHandSeconds);
  EXPECT_LT(took.count(), 20) << "on a full machine";
}

}  // namespace
}  // namespace stretto::communicator
