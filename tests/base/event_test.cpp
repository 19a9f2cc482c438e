// The event rings: what is read back is what was written, whole and in order, while writers go on; what was
// lost is counted; and an event costs little.
#include "base/event.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "harness/watchdog.hpp"
#include "platform/clock.hpp"

namespace stretto::events {
namespace {

// Every field follows from one number, so that a mixture of two events shows.
Payload payloadOf(uint64_t n) {
  Payload payload;
  payload.communicator = n * 3;
  payload.sequence = n;
  payload.bytes = ~n;
  payload.rank = static_cast<int32_t>(n);
  payload.peer = static_cast<int32_t>(n + 1);
  payload.function = payload.op = payload.detail = static_cast<uint8_t>(n);
  return payload;
}

bool isWhole(const Event& event) {
  const Payload expected = payloadOf(event.sequence);
  return event.ticks == event.sequence + 7 && event.type == Type::kCollective &&
         typeOf(event.id) == Type::kCollective && event.communicator == expected.communicator &&
         event.bytes == expected.bytes && event.rank == expected.rank && event.peer == expected.peer &&
         event.function == expected.function && event.op == expected.op && event.detail == expected.detail;
}

void writeEvents(uint64_t count) {
  for (uint64_t n = 1; n <= count; ++n) {
    start(Type::kCollective, Id::kNone, payloadOf(n), n + 7);
  }
}

// Empties the registry of what other tests left, and puts the defaults back.
class EventTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
  static void reset() {
    drain();
    enable(false);
    setRingCapacity(8192);
  }
  // In a thread of its own, whose ring is new.
  template <typename F>
  static void onThread(F&& body) {
    std::thread(body).join();
  }
  // The drained events of the thread that wrote any; tests write from one thread.
  static ThreadEvents drainOne() {
    for (auto& thread : drain().threads) {
      if (thread.recorded > 0 && thread.ended) return std::move(thread);
    }
    return {};
  }
};

TEST_F(EventTest, ReadsBackWhatWasWritten) {
  onThread([] {
    const Id parent = start(Type::kCollectiveApi, Id::kNone, payloadOf(1), 100);
    const Id child = start(Type::kCollective, parent, payloadOf(2), 101);
    state(child, 22, 102, 4096);
    stop(child, 103, Code::kTimeout, 17);
    instant(Type::kAbort, parent, {}, 104);
    stop(Id::kNone, 105);
  });
  const auto events = drainOne().events;
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].ticks, 100u);
  EXPECT_EQ(events[1].parent, events[0].id);
  EXPECT_EQ(events[1].sequence, 2u);
  EXPECT_EQ(events[2].id, events[1].id);
  EXPECT_EQ(events[2].phase, Phase::kState);
  EXPECT_EQ(events[2].detail, 22);
  EXPECT_EQ(events[2].bytes, 4096u);
  EXPECT_EQ(events[3].phase, Phase::kStop);
  EXPECT_EQ(static_cast<Code>(events[3].detail), Code::kTimeout);
  EXPECT_EQ(events[3].type, Type::kCollective);
  EXPECT_EQ(events[4].phase, Phase::kInstant);
}

TEST_F(EventTest, IdsAreUniqueAndNameTypeAndProcess) {
  constexpr int kThreads = 3;
  constexpr uint64_t kEach = 6000;  // more than one block of ids
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([] { writeEvents(kEach); });
  }
  for (auto& thread : threads) thread.join();
  std::set<Id> seen;
  std::set<uint16_t> tags;
  for (const auto& thread : drain().threads) {
    for (const Event& event : thread.events) {
      EXPECT_EQ(typeOf(event.id), Type::kCollective);
      tags.insert(processTagOf(event.id));
      seen.insert(event.id);
    }
  }
  EXPECT_EQ(seen.size(), kThreads * kEach);
  EXPECT_EQ(tags.size(), 1u);
}

TEST_F(EventTest, CountsWhatItOverwrote) {
  ASSERT_TRUE(setRingCapacity(16));
  onThread([] { writeEvents(100); });
  const auto thread = drainOne();
  EXPECT_EQ(thread.recorded, 100u);
  EXPECT_EQ(thread.events.size(), 15u);  // one place is always the writer's
  EXPECT_EQ(thread.overwritten, 85u);
  EXPECT_EQ(thread.events.back().sequence, 100u);
  EXPECT_EQ(thread.events.front().sequence, 86u);
}

TEST_F(EventTest, RefusesOddCapacities) {
  EXPECT_FALSE(setRingCapacity(0));
  EXPECT_FALSE(setRingCapacity(1));
  EXPECT_FALSE(setRingCapacity(100));
  EXPECT_FALSE(setRingCapacity(size_t{1} << 25));
}

TEST_F(EventTest, SnapshotLeavesEventsAndDrainTakesThem) {
  onThread([] { writeEvents(10); });
  const auto count = [](const Snapshot& all) {
    size_t events = 0;
    for (const auto& thread : all.threads) events += thread.ended ? thread.events.size() : 0;
    return events;
  };
  EXPECT_EQ(count(snapshot()), 10u);
  EXPECT_EQ(count(snapshot()), 10u);
  EXPECT_EQ(count(drain()), 10u);
  EXPECT_EQ(count(drain()), 0u);
}

TEST_F(EventTest, RingsOfEndedThreadsAreKeptInBounds) {
  constexpr uint64_t kThreads = 100;
  for (uint64_t i = 0; i < kThreads; ++i) onThread([] { writeEvents(2); });
  const Snapshot all = drain();
  uint64_t events = 0;
  for (const auto& thread : all.threads) events += thread.ended ? thread.events.size() : 0;
  EXPECT_GT(all.lost, 0u);
  EXPECT_EQ(events + all.lost, 2 * kThreads);
}

// Two writers, and a reader that drains as fast as it can: whole events, in order, and none unaccounted for.
TEST_F(EventTest, ConsistentWhileWritersGoOn) {
  testing::Watchdog watchdog("the reader of event rings", 120);
  constexpr uint64_t kEach = 200000;
  ASSERT_TRUE(setRingCapacity(64));
  std::vector<std::thread> writers;
  std::atomic<int> running{2};
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&running] {
      writeEvents(kEach);
      --running;
    });
  }
  std::map<int32_t, uint64_t> last;
  std::map<int32_t, uint64_t> read;
  std::map<int32_t, uint64_t> overwritten;
  const auto account = [&](const Snapshot& all) {
    for (const auto& thread : all.threads) {
      for (const Event& event : thread.events) {
        ASSERT_TRUE(isWhole(event));
        ASSERT_GT(event.sequence, last[thread.thread]);
        last[thread.thread] = event.sequence;
      }
      read[thread.thread] += thread.events.size();
      overwritten[thread.thread] = thread.overwritten;
    }
  };
  while (running > 0 && !HasFatalFailure()) {
    account(drain());
    for (const auto& thread : snapshot().threads) {
      for (const Event& event : thread.events) ASSERT_TRUE(isWhole(event));
    }
  }
  // A drain forgets the ring of an ended thread, so the counts of a thread stay those of its last drain.
  for (auto& writer : writers) writer.join();
  account(drain());
  uint64_t total = 0;
  for (const auto& [thread, count] : read) total += count + overwritten[thread];
  EXPECT_EQ(total, 2 * kEach);
}

TEST_F(EventTest, ScopeRecordsOnlyWhenOn) {
  const auto once = [] {
    onThread([] {
      const Scope scope(Type::kWait, Id::kNone, payloadOf(5), platform::ticks);
      EXPECT_EQ(scope.id() != Id::kNone, on());
    });
  };
  once();
  EXPECT_TRUE(drainOne().events.empty());
  enable(true);
  once();
  const auto events = drainOne().events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].phase, Phase::kStop);
  EXPECT_GE(events[1].ticks, events[0].ticks);
}

TEST_F(EventTest, EnvironmentSwitches) {
  setenv("STRETTO_EVENTS", "1", 1);
  EXPECT_TRUE(enableFromEnvironment().ok());
  EXPECT_TRUE(on());
  setenv("STRETTO_EVENTS", "perhaps", 1);
  EXPECT_EQ(enableFromEnvironment().code, Code::kInvalidUsage);
  EXPECT_TRUE(on());
  unsetenv("STRETTO_EVENTS");
  EXPECT_TRUE(enableFromEnvironment().ok());
  EXPECT_TRUE(on()) << "unset leaves what the program chose";
}

class ForkedEvents : public EventTest {};

TEST_F(ForkedEvents, StartAfreshUnderTheirOwnTag) {
  const Id before = start(Type::kCollective, Id::kNone, payloadOf(1), 8);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    const Id after = start(Type::kCollective, Id::kNone, payloadOf(2), 9);
    const Snapshot all = drain();
    const bool fresh = all.threads.size() == 1 && all.threads[0].events.size() == 1 &&
                       all.threads[0].events[0].sequence == 2 && all.threads[0].thread == getpid();
    _exit(fresh && processTagOf(after) != processTagOf(before) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(EventTest, TypesMatchNcclsMask) {
  EXPECT_EQ(ncclBit(Type::kGroup), 1u << 0);
  EXPECT_EQ(ncclBit(Type::kProxyStep), 1u << 4);
  EXPECT_EQ(ncclBit(Type::kKernelChannel), 1u << 6);
  EXPECT_EQ(ncclBit(Type::kGroupApi), 1u << 8);
  EXPECT_EQ(ncclBit(Type::kKernelLaunch), 1u << 11);
  EXPECT_EQ(ncclBit(Type::kWait), 0u);
  EXPECT_STREQ(nameOf(Type::kInitConnect), "init_connect");
}

// Nanoseconds per repetition, the best of a few rounds, so that another process's turn does not count.
template <typename F>
double bestNanoseconds(F&& body) {
  constexpr int kRounds = 15;
  constexpr int kRepetitions = 20000;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t from = platform::monotonicNanoseconds();
    for (int i = 0; i < kRepetitions; ++i) body();
    best = std::min(best, static_cast<double>(platform::monotonicNanoseconds() - from) / kRepetitions);
  }
  return best;
}

class EventCost : public EventTest {};

TEST_F(EventCost, OfOneEvent) {
  onThread([] {
    Payload payload = payloadOf(1);
    const double off = bestNanoseconds([&] {
      if (on()) start(Type::kCollective, Id::kNone, payload, platform::ticks());
    });
    const double stamp = bestNanoseconds([] { static_cast<void>(platform::ticks()); });
    const double event =
        bestNanoseconds([&] { start(Type::kCollective, Id::kNone, payload, platform::ticks()); });
    const double bare = bestNanoseconds([&] { start(Type::kCollective, Id::kNone, payload, 1); });
    printf("one event: %.1f ns with its stamp (the stamp alone %.1f, without it %.1f), off %.2f ns\n", event,
           stamp, bare, off);
    RecordProperty("event_ns", std::to_string(event));
    RecordProperty("off_ns", std::to_string(off));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && defined(NDEBUG)
    EXPECT_LT(event, 100.0);
    EXPECT_LT(off, 5.0);
#endif
  });
}

}  // namespace
}  // namespace stretto::events
