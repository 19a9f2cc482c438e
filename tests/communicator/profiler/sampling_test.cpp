// STRETTO_PROFILE_EVERY: which operations a profiler plugin is told of when it is not told of all, and that
// it is the same ones on every rank and at both ends of a message.
#include "base/scoped_variable.hpp"
#include "communicator/profiler/calls.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

class ProfilerSampling : public ProfilerCalls {
 protected:
  Journal every(int n, const Body& body, int ranks = 2) {
    const ScopedVariable variable("STRETTO_PROFILE_EVERY", std::to_string(n).c_str());
    return run(0xffff, body, ranks);
  }
  // Functions and numbers of a rank's collectives, in the order in which they started.
  static std::string collectivesOf(const Journal& journal, int rank) {
    std::string all;
    for (const JournalCall& call : journal.of("start", "Coll")) {
      if (call.word("rank") == std::to_string(rank)) all += call.word("func") + call.word("seq") + " ";
    }
    return all;
  }
};

// In a group: what they work on has to be there at its end.
void sumOf(Member& member, std::vector<float>& data) {
  member.expect(
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclSum, member.comm, nullptr),
      "ncclAllReduce");
}
void broadcast(Member& member, std::vector<float>& data) {
  member.expect(ncclBroadcast(data.data(), data.data(), data.size(), ncclFloat, 0, member.comm, nullptr),
                "ncclBroadcast");
}

TEST_F(ProfilerSampling, TellsOfEveryNthOfEachFunction) {
  const Journal journal = every(3, [](Member& member) {
    std::vector<float> data(8);
    for (int times = 0; times < 7; ++times) {
      sum(member);
      if (times < 4) broadcast(member, data);
      sum(member, 0);  // moves nothing, has no number
    }
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(collectivesOf(journal, rank), "AllReduce0 Broadcast0 AllReduce3 Broadcast3 AllReduce6 ");
  }
  // All of their events and no others.
  for (const char* type : {"GroupApi", "CollApi", "KernelLaunch", "Group", "Coll", "KernelCh"}) {
    EXPECT_EQ(journal.of("start", type).size(), 10u) << type;
    EXPECT_EQ(journal.of("stop", type).size(), 10u) << type;
  }
}

TEST_F(ProfilerSampling, OfEachOperationChangesNothing) {
  const Body body = [](Member& member) {
    std::vector<float> one(16), other(8);
    ncclGroupStart();
    sumOf(member, one);
    broadcast(member, other);
    member.expect(ncclGroupEnd(), "ncclGroupEnd");
    sum(member, 0);
    ncclGroupStart();
    ncclSend(one.data(), 1, ncclFloat, 1 - member.rank, member.comm, nullptr);
    ncclRecv(other.data(), 1, ncclFloat, 1 - member.rank, member.comm, nullptr);
    member.expect(ncclGroupEnd(), "ncclGroupEnd");
  };
  const Journal all = run(0xffff, body);
  const Journal one = every(1, body);
  for (const char* call : {"GroupApi/0.0", "GroupApi/1.0"}) {
    EXPECT_EQ(all.script(all.threadOf(call)), one.script(one.threadOf(call)));
  }
}

// The group's own events come with those of its operations that are told of, and not without one.
TEST_F(ProfilerSampling, AGroupIsToldOfWithItsOperations) {
  const Journal journal = every(4, [](Member& member) {
    std::vector<std::vector<float>> data(4, std::vector<float>(16));
    for (int group = 0; group < 4; ++group) {
      ncclGroupStart();
      for (int times = 0; times < 3; ++times) sumOf(member, data[times]);
      if (group == 1) broadcast(member, data[3]);
      member.expect(ncclGroupEnd(), "ncclGroupEnd");
    }
  });
  for (const int rank : {0, 1}) {
    // Of the twelve, 0 is in the first group, 4 in the second, 8 in the third, none in the last.
    EXPECT_EQ(collectivesOf(journal, rank), "AllReduce0 AllReduce4 Broadcast0 AllReduce8 ");
  }
  EXPECT_EQ(journal.of("start", "GroupApi").size(), 6u);
  EXPECT_EQ(journal.of("start", "KernelLaunch").size(), 6u);
  EXPECT_EQ(journal.of("start", "Group").size(), 6u);
  for (const JournalCall& call : journal.of("start", "Coll")) {
    EXPECT_TRUE(call.word("in").starts_with("CollApi/" + call.word("rank"))) << call.word("in");
    EXPECT_TRUE(call.word("group").starts_with("Group/" + call.word("rank"))) << call.word("group");
  }
}

// A rank that sends to many and one that receives from it count the messages between the two.
TEST_F(ProfilerSampling, MessagesAreToldOfAtBothEnds) {
  const Journal journal = every(
      2,
      [](Member& member) {
        float data[5] = {};
        for (int times = 0; times < 5; ++times) {
          // Rank 0 sends to 1 each time, to 2 every other time.
          ncclGroupStart();
          if (member.rank == 0) ncclSend(data, 1 + times, ncclFloat, 1, member.comm, nullptr);
          if (member.rank == 1) ncclRecv(data, 1 + times, ncclFloat, 0, member.comm, nullptr);
          if (member.rank == 0 && times % 2 == 0) ncclSend(data, 1, ncclFloat, 2, member.comm, nullptr);
          if (member.rank == 2 && times % 2 == 0) ncclRecv(data, 1, ncclFloat, 0, member.comm, nullptr);
          member.expect(ncclGroupEnd(), "ncclGroupEnd");
        }
      },
      3);
  std::map<std::string, std::string> reported;
  for (const JournalCall& call : journal.of("start", "P2p")) {
    reported[call.word("rank") + call.word("func") + call.word("peer")] += call.word("count") + " ";
  }
  const std::map<std::string, std::string> expected{
      {"0Send1", "1 3 5 "}, {"1Recv0", "1 3 5 "}, {"0Send2", "1 1 "}, {"2Recv0", "1 1 "}};
  EXPECT_EQ(reported, expected);
  EXPECT_EQ(journal.of("start", "ProxyOp").size(), 10u);
  for (const JournalCall& call : journal.of("start", "ProxyOp")) {
    EXPECT_TRUE(call.word("in").starts_with("P2p/")) << call.word("in");
  }
  EXPECT_EQ(journal.of("start", "KernelCh").size(), 10u);
}

// What was called and did not run has no number: not where the group fails, nor where it is only asked about.
TEST_F(ProfilerSampling, CallsThatDoNotRunAreNotCounted) {
  const Journal journal = every(2, [](Member& member) {
    sum(member);
    float x = 0;
    for (int times = 0; times < 3; ++times) {
      ncclGroupStart();
      sum(member);
      ncclBroadcast(&x, &x, 1, ncclFloat, 99, member.comm, nullptr);  // no such root
      member.expect(ncclGroupEnd(), "ncclGroupEnd", ncclInvalidArgument);
    }
    ncclGroupStart();
    sum(member);
    sum(member);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    member.expect(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
    for (int times = 0; times < 4; ++times) sum(member);
  });
  for (const int rank : {0, 1}) EXPECT_EQ(collectivesOf(journal, rank), "AllReduce0 AllReduce2 AllReduce4 ");
}

// The thread of a stream is told of no work when not all of it is, and what it is told is complete.
TEST_F(ProfilerSampling, WorkersAreNotToldOf) {
  communicators_ = 2;
  const Journal journal = every(2, [](Member& member) {
    ncclComm_t child = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    (void)ncclCommSplit(member.comm, 0, member.rank, &child, &config);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ncclCommGetAsyncError(child, &state);
    std::vector<float> data(16, 1);
    for (int times = 0; times < 4; ++times) {
      (void)ncclAllReduce(data.data(), data.data(), 16, ncclFloat, ncclSum, child, nullptr);
      do ncclCommGetAsyncError(child, &state);
      while (state == ncclInProgress);
      member.check(state == ncclSuccess, "the operation has run");
    }
    ncclCommFinalize(child);
    do ncclCommGetAsyncError(child, &state);
    while (state == ncclInProgress);
    ncclCommDestroy(child);
  });
  EXPECT_TRUE(journal.of("start", "ProxyCtrl").empty());
  EXPECT_EQ(journal.of("start", "Coll").size(), 4u);
}

TEST_F(ProfilerSampling, APluginOfOursHearsHowManyAreLeftOut) {
  which_ = "stamped";
  const Journal some = every(5, [](Member& member) { sum(member); });
  ASSERT_EQ(some.of("sample", "").size(), 2u);
  for (const JournalCall& call : some.of("sample", "")) EXPECT_EQ(call.number("every"), 5u);
  const Journal all = every(1, [](Member& member) { sum(member); });
  EXPECT_TRUE(all.of("sample", "").empty());
}

TEST_F(ProfilerSampling, AWrongNumberIsAnError) {
  for (const char* wrong : {"0", "-1", "many", "5000000000"}) {
    const ScopedVariable variable("STRETTO_PROFILE_EVERY", wrong);
    const Board board(1);
    asThreads(board, [wrong](Member& member) {
      ncclUniqueId id;
      member.expect(ncclGetUniqueId(&id), "ncclGetUniqueId");
      member.expect(ncclCommInitRank(&member.comm, 1, id, 0), "ncclCommInitRank", ncclInvalidUsage);
      member.expectError("ncclCommInitRank", {"STRETTO_PROFILE_EVERY", wrong, "from 1 to"});
      member.comm = nullptr;
    });
  }
}

}  // namespace
}  // namespace stretto
