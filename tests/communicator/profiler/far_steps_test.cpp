// What a profiler plugin hears of the chunks that a collective sends to ranks on other hosts.
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "communicator/core/far.hpp"
#include "communicator/profiler/calls.hpp"
#include "harness/made_up_net.hpp"
#include "observe/profiler_abi.hpp"
#include "platform/clock.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using observe::profiler::bit;
using observe::profiler::Type;

constexpr size_t kSeveralChunks = 3 << 18;  // of float
constexpr double kLateSeconds = 0.2;

class FarProfilerCalls : public ProfilerCalls {
 protected:
  void SetUp() override { setenv("STRETTO_LINK", "net", 1); }
  void TearDown() override { unsetenv("STRETTO_LINK"); }
};

// Each direction is a proxy operation of the collective, each chunk a step, and what the net sends an event
// in it; what one rank sends the other receives.
TEST_F(FarProfilerCalls, ChunksAreStepsOfTheirCollective) {
  const Journal journal = run(0xffff, [](Member& member) { sum(member, kSeveralChunks); });
  const auto operations = journal.of("start", "ProxyOp");
  ASSERT_EQ(operations.size(), 4u);
  std::map<std::string, std::string> wayOf;  // of an operation: who sends to whom, and who tells of it
  for (const JournalCall& call : operations) {
    EXPECT_TRUE(call.word("in").starts_with("Coll/" + call.word("rank"))) << call.word("in");
    EXPECT_EQ(call.number("peer"), 1 - call.number("rank"));
    EXPECT_GT(call.number("chunk"), 0u);
    const bool sends = call.word("send") == "1";
    wayOf[call.event] = (sends ? call.word("rank") : call.word("peer")) + (sends ? " sends" : " is received");
  }
  std::map<std::string, std::string> wayOfStep, states;
  std::map<std::string, uint64_t> steps, bytes;
  for (const JournalCall& call : journal.of("start", "ProxyStep")) {
    ASSERT_EQ(wayOf.count(call.word("in")), 1u) << call.word("in");
    const std::string way = wayOfStep[call.event] = wayOf[call.word("in")];
    EXPECT_EQ(call.number("step"), steps[way]++);
  }
  for (const JournalCall& call : journal.of("state", "ProxyStep")) {
    states[call.event] += call.word("state") + " ";
    bytes[wayOfStep[call.event]] += call.number("bytes");
  }
  for (const auto& [event, seen] : states) {
    EXPECT_EQ(seen, wayOfStep[event].ends_with("sends") ? "20 8 9 " : "10 12 ") << event;
  }
  for (const char* rank : {"0", "1"}) {
    const std::string sent = std::string(rank) + " sends", received = std::string(rank) + " is received";
    EXPECT_GT(steps[sent], 1u);
    EXPECT_EQ(steps[sent], steps[received]);
    EXPECT_GE(bytes[sent], kSeveralChunks * sizeof(float) / 2);
    EXPECT_EQ(bytes[sent], bytes[received]);
  }
  uint64_t length = 0;
  for (const JournalCall& call : journal.of("start", "NetPlugin")) {
    EXPECT_TRUE(wayOfStep[call.word("in")].ends_with("sends")) << call.word("in");
    EXPECT_EQ(call.word("plugin"), "20001");
    EXPECT_EQ(call.word("socketEvent"), "1");
    EXPECT_EQ(call.word("fd"), "-1");
    EXPECT_EQ(call.word("op"), "0");
    length += call.number("length");
  }
  EXPECT_EQ(journal.of("start", "NetPlugin").size(), steps["0 sends"] + steps["1 sends"]);
  EXPECT_EQ(length, bytes["0 sends"] + bytes["1 sends"]);
}

// What earlier operations sent is not taken for the later one's.
TEST_F(FarProfilerCalls, EachOfSeveralCollectivesHasItsOwnChunks) {
  const Journal journal = run(0xffff, [](Member& member) {
    for (int turn = 0; turn < 3; ++turn) sum(member, kSeveralChunks);
  });
  std::set<std::string> handedOver;  // steps, and those of them that the net has begun
  std::map<std::string, size_t> begun;
  for (const JournalCall& call : journal.calls()) {
    if (call.word("state") == "9") handedOver.insert(call.event);
    if (call.word("event") == "NetPlugin") ++begun[call.word("in")];
  }
  EXPECT_EQ(journal.of("start", "ProxyOp").size(), 12u);
  EXPECT_EQ(begun.size(), handedOver.size());
  for (const auto& [step, times] : begun) EXPECT_EQ(times, 1u) << step;
}

// The steps say who waited for whom: the rank that came in time for the data of the late one, which did not
// wait for its. That is the first thing that either receives of the last all-reduce, and so small that it was
// on its way in full: what it takes afterwards is the machine's.
TEST_F(FarProfilerCalls, StepsSayWhoWaitedForWhom) {
  which_ = "stamped";
  const Journal journal = run(bit(Type::kProxyStep), [](Member& member) {
    sum(member);  // connects
    member.board.meet();
    if (member.rank == 1) std::this_thread::sleep_for(std::chrono::duration<double>(kLateSeconds));
    sum(member);
  });
  std::map<std::string, std::string> rankOf;  // of the first steps
  for (const JournalCall& call : journal.of("start", "ProxyStep")) {
    if (call.word("step") == "0") rankOf[call.event] = call.word("rank");
  }
  std::map<std::string, uint64_t> since, until;
  std::map<std::string, std::string> received;  // the last of them that receives, of each rank
  for (const JournalCall& call : journal.of("state", "ProxyStep")) {
    if (call.word("state") == "10") since[call.event] = call.number("at");
    if (call.word("state") == "12") until[call.event] = call.number("at");
    if (call.word("state") == "10" && rankOf.count(call.event) != 0)
      received[rankOf[call.event]] = call.event;
  }
  const auto waited = [&](const char* rank) {
    return platform::tickSeconds(until[received[rank]] - since[received[rank]]);
  };
  EXPECT_GE(waited("0"), kLateSeconds * 0.8);
  EXPECT_LT(waited("1"), waited("0"));
}

TEST_F(FarProfilerCalls, AMaskWithoutStepsBringsNone) {
  const Journal journal = run(bit(Type::kProxyOp), [](Member& member) { sum(member, kSeveralChunks); });
  EXPECT_EQ(journal.of("start", "ProxyOp").size(), 4u);
  EXPECT_TRUE(journal.of("start", "ProxyStep").empty());
  EXPECT_TRUE(journal.of("start", "NetPlugin").empty());
}

// A collective that fails leaves nothing open (run() looks).
TEST_F(FarProfilerCalls, WhatFailsIsClosedToo) {
  const Journal journal = run(0xffff, [](Member& member) {
    std::vector<float> data(kSeveralChunks, 1);
    const size_t count = member.rank == 0 ? kSeveralChunks : kSeveralChunks / 2;
    EXPECT_NE(ncclAllReduce(data.data(), data.data(), count, ncclFloat, ncclSum, member.comm, nullptr),
              ncclSuccess);
  });
  EXPECT_EQ(journal.of("start", "Coll").size(), 2u);
  EXPECT_FALSE(journal.of("start", "ProxyStep").empty());
}

// Nor does one that is aborted while chunks are with the net and others are awaited.
TEST_F(FarProfilerCalls, WhatIsAbortedIsClosedToo) {
  const Journal journal = run(0xffff, [](Member& member) {
    sum(member, kSeveralChunks);  // connects
    member.board.meet();
    ncclComm_t const comm = std::exchange(member.comm, nullptr);
    if (member.rank == 0) {
      std::thread aborts([&] {
        std::this_thread::sleep_for(std::chrono::duration<double>(kLateSeconds));
        member.expect(ncclCommAbort(comm), "abort");
      });
      std::vector<float> data(kSeveralChunks, 1);
      member.check(ncclAllReduce(data.data(), data.data(), kSeveralChunks, ncclFloat, ncclSum, comm,
                                 nullptr) != ncclSuccess,
                   "an all-reduce that was aborted");
      aborts.join();
    }
    member.board.meet();
    if (member.rank == 1) member.expect(ncclCommAbort(comm), "abort");
  });
  EXPECT_EQ(journal.of("start", "Coll").size(), 3u);
  EXPECT_EQ(journal.of("stop", "ProxyStep").size(), journal.of("start", "ProxyStep").size());
}

TEST_F(FarProfilerCalls, MessagesHaveTheStepsOfTransfersAlone) {
  const Journal journal = run(0xffff, [](Member& member) {
    sum(member, kSeveralChunks);
    std::vector<float> data(16, 1);
    if (member.rank == 0)
      ncclSend(data.data(), 16, ncclFloat, 1, member.comm, nullptr);
    else
      ncclRecv(data.data(), 16, ncclFloat, 0, member.comm, nullptr);
  });
  size_t ofMessages = 0;
  for (const JournalCall& call : journal.of("start", "ProxyOp"))
    ofMessages += call.word("in").starts_with("P2p/");
  EXPECT_EQ(ofMessages, 2u);
  EXPECT_EQ(journal.of("start", "ProxyOp").size(), 6u);
}

// The same over a net that is made up inside the process, which is no socket of ours and does what it is
// told.
class FarProfilerFaults : public FarProfilerCalls {
 protected:
  void SetUp() override {
    FarProfilerCalls::SetUp();
    communicator::useBetweenHosts(net_);
  }
  void TearDown() override {
    communicator::useBetweenHosts(nullptr);
    unsetenv("STRETTO_TEST_PROFILE_DECLINE");
    FarProfilerCalls::TearDown();
  }
  // The numbers of steps, by rank, peer and way, as the plugin was told of them.
  static std::map<std::string, std::vector<uint64_t>> numbersOf(const Journal& journal) {
    std::map<std::string, std::vector<uint64_t>> numbers;
    for (const JournalCall& call : journal.calls()) {
      if (call.word("event") == "ProxyStep")
        numbers[call.word("in") + call.word("parent")].push_back(call.number("step"));
    }
    return numbers;
  }

  const std::shared_ptr<MadeUpNet> net_ = std::make_shared<MadeUpNet>();
};

TEST_F(FarProfilerFaults, AnotherNetHasStepsAndNoEventsOfSockets) {
  net_->faults.polls = 3;
  const Journal journal = run(
      0xffff, [](Member& member) { sum(member, kSeveralChunks); }, 3);
  EXPECT_FALSE(journal.of("stop", "ProxyStep").empty());
  EXPECT_TRUE(journal.of("start", "NetPlugin").empty());
}

// Whatever is open then: chunks that wait for room, that the net has, that are awaited.
TEST_F(FarProfilerFaults, ALinkThatBreaksLeavesNothingOpen) {
  for (const int messages : {3, 10, 23}) {
    net_->faults.breaks = messages;
    const Journal journal = run(0xffff, [](Member& member) {
      std::vector<float> data(kSeveralChunks, 1);
      ncclResult_t result = ncclSuccess;
      for (int turn = 0; turn < 100 && result == ncclSuccess; ++turn)
        result =
            ncclAllReduce(data.data(), data.data(), kSeveralChunks, ncclFloat, ncclSum, member.comm, nullptr);
      member.check(result != ncclSuccess, "all-reduces over a net that broke");
      member.board.meet();
      member.expect(ncclCommAbort(std::exchange(member.comm, nullptr)), "abort");
    });
    EXPECT_FALSE(journal.of("start", "ProxyStep").empty());
  }
}

// A plugin may take no step, or no operation: each chunk is offered once, and nothing under what was not
// taken.
TEST_F(FarProfilerFaults, WhatIsNotTakenIsOfferedOnce) {
  net_->faults.polls = 50;  // so that the root waits for room
  const auto many = [](Member& member) {
    std::vector<float> data(8 * kSeveralChunks, 1);
    member.expect(ncclBroadcast(data.data(), data.data(), data.size(), ncclFloat, 0, member.comm, nullptr),
                  "ncclBroadcast");
  };
  const auto taken = numbersOf(run(0xffff, many));
  setenv("STRETTO_TEST_PROFILE_DECLINE", std::to_string(bit(Type::kProxyStep)).c_str(), 1);
  const auto declined = numbersOf(run(0xffff, many));
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(declined.size(), 2u);
  for (const auto& numbers : {taken, declined}) {
    for (const auto& [way, steps] : numbers) {
      EXPECT_GT(steps.size(), 16u);
      EXPECT_EQ(steps.size(), taken.begin()->second.size()) << way;
      for (size_t step = 0; step < steps.size(); ++step) EXPECT_EQ(steps[step], step) << way;
    }
  }
  setenv("STRETTO_TEST_PROFILE_DECLINE", std::to_string(bit(Type::kProxyOp)).c_str(), 1);
  EXPECT_TRUE(numbersOf(run(0xffff, many)).empty());
}

}  // namespace
}  // namespace stretto
