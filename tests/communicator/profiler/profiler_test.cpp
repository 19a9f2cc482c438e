// What a communicator tells a profiler plugin: which events each mask brings, when a mask takes effect,
// numbers of operations, sends and receives with their chunks, workers, and groups that fail.
#include <dlfcn.h>

#include "communicator/profiler/calls.hpp"
#include "harness/temporary_folder.hpp"
#include "observe/profiler_abi.hpp"
#include "platform/clock.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;
using observe::profiler::bit;
using observe::profiler::Type;

// As a plugin may do at any time, through the pointer that its init was given.
void setMask(int mask) {
  void* const library = dlopen(recordingPlugin().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(library, "recordingSetMask"));
  ASSERT_NE(set, nullptr);
  set(mask);
  dlclose(library);
}

// A lower event brings those above it; nothing else comes unasked.
TEST_F(ProfilerCalls, AMaskBringsItsEventsAndTheirAncestors) {
  const std::pair<uint64_t, const char*> kWanted[] = {
      {0, ""},
      {bit(Type::kGroupApi), "GroupApi "},
      {bit(Type::kCollApi), "GroupApi CollApi "},
      {bit(Type::kP2pApi), "GroupApi "},
      {bit(Type::kKernelLaunch), "GroupApi KernelLaunch "},
      {bit(Type::kGroup), "GroupApi Group "},
      {bit(Type::kColl), "GroupApi CollApi Group Coll "},
      {bit(Type::kKernelCh), "GroupApi CollApi Group Coll KernelCh "},
      {bit(Type::kProxyStep), "GroupApi CollApi Group Coll "},
      {bit(Type::kProxyCtrl), ""},
      {0xffff, "GroupApi CollApi KernelLaunch Group Coll KernelCh "}};
  for (const auto& [mask, events] : kWanted) {
    const Journal journal = run(mask, [](Member& member) { sum(member); });
    EXPECT_EQ(startedBy(journal), events) << std::hex << mask;
  }
}

TEST_F(ProfilerCalls, TheMaskIsThatOfTheCall) {
  const Journal journal = run(0, [](Member& member) {
    sum(member);  // nobody listens
    member.board.meet();
    if (member.rank == 0) setMask(static_cast<int>(bit(Type::kColl)));
    member.board.meet();
    ncclGroupStart();
    std::vector<float> data(16, 1);
    ncclAllReduce(data.data(), data.data(), 16, ncclFloat, ncclSum, member.comm, nullptr);
    member.board.meet();
    if (member.rank == 0) setMask(0);
    member.board.meet();
    member.expect(ncclGroupEnd(), "ncclGroupEnd");  // called while somebody listened
    sum(member);                                    // and this was not
    member.board.meet();
    if (member.rank == 0) setMask(static_cast<int>(bit(Type::kColl)));
    member.board.meet();
    sum(member);
  });
  EXPECT_EQ(startedBy(journal), "GroupApi CollApi Group Coll GroupApi CollApi Group Coll ");
  // Numbers go on while nobody listens, the same on all ranks.
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(journal.of("start", "Coll").size(), 4u);
    std::string numbers;
    for (const JournalCall& call : journal.of("start", "Coll")) {
      if (call.word("rank") == rank) numbers += call.word("seq") + " ";
    }
    EXPECT_EQ(numbers, "1 3 ");
  }
}

TEST_F(ProfilerCalls, OperationsAreNumberedByFunction) {
  const Journal journal = run(bit(Type::kColl), [](Member& member) {
    std::vector<float> data(32, 1);
    for (int times = 0; times < 3; ++times) {
      sum(member);
      ncclBroadcast(data.data(), data.data(), 8, ncclFloat, 0, member.comm, nullptr);
    }
    ncclAllReduce(data.data(), data.data(), 0, ncclFloat, ncclSum, member.comm, nullptr);  // moves nothing
    ncclAlltoAll(data.data(), data.data() + 16, 8, ncclFloat, member.comm, nullptr);
    sum(member);
  });
  std::string numbers;
  for (const JournalCall& call : journal.of("start", "Coll")) {
    if (call.word("rank") == "1") numbers += call.word("func") + call.word("seq") + " ";
  }
  EXPECT_EQ(numbers,
            "AllReduce0 Broadcast0 AllReduce1 Broadcast1 AllReduce2 Broadcast2 AlltoAll0 AllReduce3 ");
}

// What a config says of one call, and of no other; NCCL's interface has no events for one-sided calls.
TEST_F(ProfilerCalls, ATagOfTheCallerIsToldWithItsCall) {
  const Journal journal = run(bit(Type::kCollApi) | bit(Type::kColl), [](Member& member) {
    std::vector<float> data(16, 1);
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    config.userProfilerTag = 4242;
    member.expect(
        ncclAllReduceConfig(data.data(), data.data(), 16, ncclFloat, ncclSum, member.comm, nullptr, &config),
        "with a tag");
    sum(member);
    member.expect(ncclSignal(1 - member.rank, 0, 0, 0, member.comm, nullptr), "signal");
    ncclWaitSignalDesc_t wanted{1, 1 - member.rank, 0, 0};
    member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait");
  });
  for (const char* event : {"CollApi", "Coll"}) {
    std::string tags;
    for (const JournalCall& call : journal.of("start", event)) {
      if (call.word("rank") == "1") tags += "[" + call.word("tag") + "]";
    }
    EXPECT_EQ(tags, "[4242][]") << event;
  }
}

// A send of three chunks and a receive of one, each with its waits; the P2p events hold them.
TEST_F(ProfilerCalls, TransfersAreProxyOperationsOfSteps) {
  const Journal journal = run(0xffff, [](Member& member) {
    const size_t kMany = 5 << 18;
    std::vector<float> out(kMany, 1), in(kMany);
    const int peer = 1 - member.rank;
    const size_t sent = member.rank == 0 ? kMany : 4;
    ncclGroupStart();
    ncclSend(out.data(), sent, ncclFloat, peer, member.comm, nullptr);
    ncclRecv(in.data(), kMany + 4 - sent, ncclFloat, peer, member.comm, nullptr);
    member.expect(ncclGroupEnd(), "ncclGroupEnd");
  });
  const auto operations = journal.of("start", "ProxyOp");
  ASSERT_EQ(operations.size(), 4u);
  size_t steps = 0;
  for (const JournalCall& call : operations) {
    EXPECT_TRUE(call.word("in").starts_with("P2p/" + call.word("rank"))) << call.word("in");
    EXPECT_EQ(call.number("peer"), 1 - call.number("rank"));
    const bool isLarge = call.word("rank") == (call.word("send") == "1" ? "0" : "1");
    const uint64_t bytes = isLarge ? 5 << 20 : 16;
    EXPECT_EQ(call.number("steps"), (bytes + call.number("chunk") - 1) / call.number("chunk"));
    steps += call.number("steps");
  }
  EXPECT_EQ(journal.of("start", "ProxyStep").size(), steps);
  // Every step waits, then moves its bytes; together they are what was sent, and received.
  std::map<std::string, std::string> states;
  uint64_t moved = 0;
  for (const JournalCall& call : journal.of("state", "ProxyStep")) {
    states[call.event] += call.word("state") + " ";
    moved += call.number("bytes");
  }
  for (const auto& [event, seen] : states) EXPECT_TRUE(seen == "20 9 " || seen == "10 12 ") << event << seen;
  EXPECT_EQ(moved, 2u * ((5u << 20) + 16));
  for (const JournalCall& call : journal.of("start", "P2p")) {
    EXPECT_TRUE(call.word("in").starts_with("P2pApi/" + call.word("rank")));
    EXPECT_EQ(call.word("group"), "Group/" + call.word("rank") + ".0");
  }
  EXPECT_EQ(journal.of("start", "KernelCh").size(), 4u);
}

TEST_F(ProfilerCalls, MessagesToOneselfHaveNoProxy) {
  const Journal journal = run(0xffff, [](Member& member) {
    float out = 1, in = 0;
    ncclGroupStart();
    ncclSend(&out, 1, ncclFloat, member.rank, member.comm, nullptr);
    ncclRecv(&in, 1, ncclFloat, member.rank, member.comm, nullptr);
    member.expect(ncclGroupEnd(), "ncclGroupEnd");
  });
  EXPECT_EQ(journal.of("start", "P2p").size(), 4u);
  EXPECT_TRUE(journal.of("start", "ProxyOp").empty());
}

// Handed over to the stream's thread: the launch is the hand-over, the work is elsewhere and perhaps later.
TEST_F(ProfilerCalls, AStreamRunsWhatWasLaunched) {
  const Journal journal = run(0xffff, [](Member& member) {
    cudaStream_t stream = nullptr;
    member.expect(strettoStreamCreate(&stream), "strettoStreamCreate");
    std::vector<float> data(16, 1);
    member.expect(ncclAllReduce(data.data(), data.data(), 16, ncclFloat, ncclSum, member.comm, stream),
                  "ncclAllReduce");
    member.expect(strettoStreamSynchronize(stream), "strettoStreamSynchronize");
    strettoStreamDestroy(stream);
  });
  for (const char* rank : {"0", "1"}) {
    const std::string caller = journal.threadOf(std::string("CollApi/") + rank + ".0");
    EXPECT_EQ(caller, journal.threadOf(std::string("KernelLaunch/") + rank + ".0"));
    EXPECT_NE(caller, journal.threadOf(std::string("Coll/") + rank + ".0"));
  }
  EXPECT_EQ(journal.of("start", "KernelLaunch").size(), 2u);
  for (const JournalCall& call : journal.of("start", "CollApi")) EXPECT_NE(call.word("stream"), "0");
}

TEST_F(ProfilerCalls, AGroupThatFailsIsClosed) {
  const Journal journal = run(0xffff, [](Member& member) {
    float x = 0;
    ncclGroupStart();
    ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, member.comm, nullptr);
    ncclBroadcast(&x, &x, 1, ncclFloat, 99, member.comm, nullptr);  // no such root
    member.expect(ncclGroupEnd(), "ncclGroupEnd", ncclInvalidArgument);
    sum(member);
  });
  EXPECT_EQ(startedBy(journal), "GroupApi CollApi GroupApi CollApi KernelLaunch Group Coll KernelCh ");
  EXPECT_EQ(journal.of("state", "GroupApi").size(), 8u);
}

// Nested groups are one; a group in which nothing is called is none.
// What a plugin with strettoProfiler_v2 is told of time: the same calls in the same order, none out of it,
// none from outside of the operation, and callbacks that follow each other at once at one time.
TEST_F(ProfilerCalls, CallbacksMadeAtOnceShareOneReadingOfTheClock) {
  const Body twoSums = [](Member& member) {
    sum(member);
    sum(member);
  };
  const Journal plain = run(0xfff, twoSums);
  which_ = "stamped";
  const uint64_t before = platform::ticks();
  const Journal stamped = run(0xfff, twoSums);
  const uint64_t after = platform::ticks();
  const std::string thread = stamped.threadOf("GroupApi/0.0");
  EXPECT_EQ(stamped.script(thread), plain.script(plain.threadOf("GroupApi/0.0")));
  uint64_t last = before;
  std::string times;  // one letter for each reading, in the order of the calls
  for (const JournalCall& call : stamped.calls()) {
    if (call.thread != thread || call.event.empty()) continue;
    ASSERT_NE(call.word("at"), "");
    const uint64_t at = call.number("at");
    if (at == 0) {
      times += '.';
      continue;
    }
    EXPECT_GE(at, last) << times;
    EXPECT_LE(at, after);
    times += at == last ? '-' : '|';
    last = at;
  }
  // The call with its group; launch and group; collective and channel; their ends and the group's; the
  // call's.
  EXPECT_EQ(times, "|----|--|-|---.|----|--|-|---.");
}

TEST_F(ProfilerCalls, GroupsNest) {
  const Journal journal = run(bit(Type::kGroupApi), [](Member& member) {
    float x[2] = {};
    ncclGroupStart();
    ncclGroupEnd();
    ncclGroupStart();
    ncclAllReduce(x, x, 1, ncclFloat, ncclSum, member.comm, nullptr);
    ncclGroupStart();
    ncclAllReduce(x + 1, x + 1, 1, ncclFloat, ncclSum, member.comm, nullptr);
    ncclGroupEnd();
    member.expect(ncclGroupEnd(), "ncclGroupEnd");
  });
  ASSERT_EQ(startedBy(journal), "GroupApi ");
  EXPECT_EQ(journal.of("start", "GroupApi")[0].word("depth"), "2");
}

// A communicator destroyed in a group whose event is open: the plugin stays until the group has ended.
TEST_F(ProfilerCalls, ThePluginOutlivesTheGroup) {
  const Journal journal = run(0xffff, [](Member& member) {
    float x = 0;
    member.board.meet();
    ncclGroupStart();
    ncclBroadcast(&x, &x, 1, ncclFloat, 99, member.comm, nullptr);  // spoils the group, is not an event
    ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, member.comm, nullptr);
    member.expect(ncclCommDestroy(member.comm), "ncclCommDestroy");
    member.comm = nullptr;
    (void)ncclGroupEnd();
  });
  EXPECT_EQ(journal.of("stop", "GroupApi").size(), 2u);
}

TEST_F(ProfilerCalls, ChildrenAreCommunicatorsOfTheirOwn) {
  const TemporaryFolder folder("children");
  const std::string log = folder / "log";
  Board board(2);
  const auto body = [](Member& member) {
    ncclComm_t child = nullptr;
    member.expect(ncclCommSplit(member.comm, 0, -member.rank, &child, nullptr), "ncclCommSplit");
    float x = 1;
    ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, child, nullptr);
    ncclCommDestroy(child);
  };
  setenv("STRETTO_TEST_PROFILE_LOG", log.c_str(), 1);
  setenv("NCCL_PROFILER_PLUGIN", recordingPlugin().c_str(), 1);
  { Processes(board, connected(body), 60).finish(); }
  unsetenv("NCCL_PROFILER_PLUGIN");
  std::ifstream file(log);
  std::set<std::string> communicators;
  size_t inits = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("comm=");
    if (at == std::string::npos) continue;
    ++inits;
    communicators.insert(line.substr(at, line.find(' ', at) - at));
  }
  EXPECT_EQ(inits, 4u) << "two ranks, two communicators";
  EXPECT_EQ(communicators.size(), 2u) << "the id is the same on all ranks";
}

}  // namespace
}  // namespace stretto
