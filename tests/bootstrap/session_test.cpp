// The hosting side without sockets: what a Session says to whom.
#include "bootstrap/session.hpp"

#include <gtest/gtest.h>

#include <map>

#include "bootstrap/host_dialogue.hpp"

namespace stretto::bootstrap {
namespace {

class RecordingPort final : public Port {
 public:
  void send(SharedBytes frame) override {
    types.push_back(static_cast<FrameType>((*frame)[4]));
    last = std::move(frame);
  }
  void finish() override { finished = true; }
  void encrypt(TlsRole, const std::optional<TlsKey>&) override {}
  std::span<const uint8_t> payload() const { return std::span(*last).subspan(8); }

  std::vector<FrameType> types;
  SharedBytes last;
  bool finished = false;
};

MemberInfo someone(int rank) {
  MemberInfo who;
  who.rank = rank;
  who.host = "h";
  return who;
}

class SessionTest : public ::testing::Test {
 protected:
  void admitAll(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_FALSE(session_.admit(static_cast<uint32_t>(ranks), someone(rank), ports_[rank]).has_value());
    }
  }
  bool contribute(int rank, uint32_t sequence, const char* name, size_t bytes) {
    const Bytes blob(bytes);
    return session_.contribute(rank, Exchange{sequence, name, blob}, complaint_);
  }

  Session session_{1, {}, Welcome{1, 99, "host"}};
  std::map<int, RecordingPort> ports_;
  std::string complaint_;
};

TEST_F(SessionTest, TheTableComesWithTheLastRank) {
  admitAll(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ports_[rank].types, (std::vector<FrameType>{FrameType::kWelcome, FrameType::kTable}));
  }
}

TEST_F(SessionTest, TooManyBytesTogetherFailTheExchangeForAll) {
  constexpr int kRanks = static_cast<int>(kMaxExchangeBytes / kMaxBlobBytes) + 1;
  admitAll(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(contribute(rank, 0, "big", kMaxBlobBytes));
  for (int rank = 0; rank < kRanks; ++rank) {
    ExchangeFailure failure;
    ASSERT_EQ(ports_[rank].types.back(), FrameType::kExchangeFailed);
    ASSERT_TRUE(decode(ports_[rank].payload(), failure));
    EXPECT_EQ(failure.why.code, Code::kInvalidUsage);
    EXPECT_NE(failure.why.text.find("\"big\""), std::string::npos) << failure.why.text;
  }
}

TEST_F(SessionTest, ContributionsOutOfTurnAreOffences) {
  EXPECT_FALSE(session_.admit(2, someone(0), ports_[0]).has_value());
  EXPECT_FALSE(contribute(0, 0, "too early", 1));
  EXPECT_FALSE(session_.admit(2, someone(1), ports_[1]).has_value());
  EXPECT_TRUE(contribute(0, 0, "name", 1));
  EXPECT_FALSE(contribute(0, 0, "name", 1)) << "twice";
  EXPECT_FALSE(contribute(1, 1, "name", 1)) << "ahead";
}

TEST_F(SessionTest, ANudgeIsForTheOthers) {
  EXPECT_FALSE(session_.admit(3, someone(0), ports_[0]).has_value());
  session_.nudge(0, Nudge{0, 1, {}});
  EXPECT_EQ(ports_[0].types.back(), FrameType::kWelcome) << "not before all are there";
  EXPECT_FALSE(session_.admit(3, someone(1), ports_[1]).has_value());
  EXPECT_FALSE(session_.admit(3, someone(2), ports_[2]).has_value());
  session_.leave(2, Goodbye{Farewell::kLeft, ""});
  session_.nudge(0, Nudge{0, 1, {}});
  EXPECT_EQ(ports_[0].types.back(), FrameType::kLeft);
  EXPECT_EQ(ports_[1].types.back(), FrameType::kNudge);
  EXPECT_EQ(ports_[2].types.back(), FrameType::kTable) << "it has left";
}

TEST_F(SessionTest, ASessionIsOverWhenAllHaveGone) {
  EXPECT_FALSE(session_.over());
  admitAll(2);
  session_.leave(0, Goodbye{Farewell::kLeft, ""});
  EXPECT_EQ(ports_[1].types.back(), FrameType::kLeft);
  EXPECT_FALSE(session_.over());
  session_.lose(1, LossKind::kDied, "gone");
  EXPECT_TRUE(session_.over());
  EXPECT_EQ(ports_[0].types.back(), FrameType::kTable) << "who has left hears nothing more";
}

TEST_F(SessionTest, AFailedRendezvousTellsLateComers) {
  EXPECT_FALSE(session_.admit(3, someone(0), ports_[0]).has_value());
  EXPECT_FALSE(session_.admit(3, someone(1), ports_[1]).has_value());
  session_.lose(1, LossKind::kDied, "its connection closed");
  EXPECT_EQ(ports_[0].types.back(), FrameType::kLost);
  const auto refusal = session_.admit(3, someone(2), ports_[2]);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->code, Code::kRemote);
  EXPECT_NE(refusal->text.find("rank 1"), std::string::npos) << refusal->text;
}

TEST(SessionDirectory, RemembersWhatHasEnded) {
  SessionDirectory directory(Welcome{1, 2, "host"});
  RecordingPort port;
  directory.open(5, {});
  directory.open(5, {});
  EXPECT_EQ(directory.size(), 1u);
  ASSERT_FALSE(directory.find(5)->admit(1, someone(0), port).has_value());
  directory.closeUnused(5);
  EXPECT_NE(directory.find(5), nullptr) << "it has members";
  directory.settle(5);
  EXPECT_NE(directory.find(5), nullptr);
  directory.find(5)->leave(0, Goodbye{Farewell::kLeft, ""});
  directory.settle(5);
  EXPECT_EQ(directory.find(5), nullptr);
  EXPECT_NE(directory.epitaph(5), nullptr);
  EXPECT_EQ(directory.epitaph(6), nullptr);
  directory.open(6, {});
  directory.closeUnused(6);
  EXPECT_EQ(directory.size(), 0u);
}

TEST(DescribeRanks, ListsRangesAndStopsInTime) {
  EXPECT_EQ(describeRanks(std::vector<int>{2}), "rank 2");
  EXPECT_EQ(describeRanks(std::vector<int>{2, 5, 6, 7, 9, 10}), "ranks 2, 5-7, 9, 10");
  std::vector<int> odd;
  for (int rank = 1; rank < kMaxRanks; rank += 2) odd.push_back(rank);
  const std::string text = describeRanks(odd);
  EXPECT_LT(text.size(), 300u);
  EXPECT_NE(text.find(" more"), std::string::npos) << text;
}

}  // namespace
}  // namespace stretto::bootstrap
