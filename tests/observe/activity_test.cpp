// Who waits for whom, from made-up recorders; and a watch on real ones.
#include "observe/activity.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/json.hpp"
#include "observe/flight.hpp"
#include "observe/made_up_flights.hpp"
#include "platform/clock.hpp"
#include "stretto.h"

namespace stretto::observe {
namespace {

using Waits = std::map<int, uint64_t>;

// Ticks before kNow at which each rank entered; -1: it has not.
constexpr int64_t kNever = -1;
void addToAll(std::vector<FlightSnapshot>& ranks, uint64_t sequence, std::vector<int64_t> entered,
              uint64_t endedAgo, Collective function = Collective::kAllReduce, int root = -1) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (entered[i] == kNever) continue;
    FlightOperation one =
        operation(sequence, kNow - static_cast<uint64_t>(entered[i]), endedAgo == 0 ? 0 : kNow - endedAgo);
    one.function = function;
    one.root = root;
    add(ranks[i], one);
  }
}

std::vector<FlightSnapshot> someRanks(int count) {
  std::vector<FlightSnapshot> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rankOf(rank, count));
  return ranks;
}

std::vector<Activity> activities(const std::vector<FlightSnapshot>& ranks, uint64_t from = 0) {
  std::vector<const FlightSnapshot*> flights;
  for (const FlightSnapshot& one : ranks) flights.push_back(&one);
  return activityOf(makeCase(flights), from);
}

TEST(Activity, TheLastToEnterIsWaitedFor) {
  auto ranks = someRanks(3);
  addToAll(ranks, 1, {1000, 900, 400}, 350);
  addToAll(ranks, 2, {300, 200, 250}, 150);
  const auto got = activities(ranks);
  EXPECT_EQ(got[0].waitedFor, (Waits{{1, 100}, {2, 600}}));
  EXPECT_EQ(got[1].waitedFor, (Waits{{2, 500}}));
  EXPECT_EQ(got[2].waitedFor, (Waits{{1, 50}}));
  EXPECT_EQ(got[0].waited, 700u);
  EXPECT_EQ(got[1].late, 150u);
  EXPECT_EQ(got[2].late, 1100u);
  EXPECT_EQ(got[0].window, 1000u) << "from the first operation that all recorded to now";
  EXPECT_TRUE(got[0].awaited.empty());
}

TEST(Activity, WhoHasNotEnteredIsWaitedForUntilNow) {
  auto ranks = someRanks(3);
  addToAll(ranks, 1, {1000, 1000, 1000}, 900);
  addToAll(ranks, 2, {800, 700, kNever}, 0);
  const auto got = activities(ranks);
  EXPECT_EQ(got[0].waitedFor, (Waits{{2, 800}}));
  EXPECT_EQ(got[1].awaited, std::vector<int>{2});
  EXPECT_TRUE(got[2].awaited.empty());
  EXPECT_EQ(got[2].late, 1500u);
}

// Nobody is accused, or excused, of what happened while the others were being read.
TEST(Activity, WhatCameAfterTheFirstReadingDoesNotCount) {
  auto ranks = someRanks(3);
  ranks[1].readTicks = kNow - 100;
  addToAll(ranks, 1, {1000, kNever, 1000}, 0);
  const auto got = activities(ranks);
  EXPECT_EQ(got[0].waited, 900u);
  EXPECT_EQ(got[0].window, 900u);
  EXPECT_EQ(got[2].window, 900u);
  EXPECT_EQ(got[1].late, 1800u);
}

TEST(Activity, OnlyWhatLiesAfterTheLastReadingCounts) {
  auto ranks = someRanks(2);
  addToAll(ranks, 1, {1000, 500}, 450);
  EXPECT_EQ(activities(ranks, kNow - 700)[0].waited, 200u);
  EXPECT_EQ(activities(ranks, kNow - 700)[0].window, 700u);
  EXPECT_EQ(activities(ranks, kNow - 100)[0].waited, 0u);
}

TEST(Activity, AWaitEndsWithItsOperation) {
  auto ranks = someRanks(2);
  // Rank 0 was done, as with an eager broadcast, before rank 1 came.
  addToAll(ranks, 1, {1000, kNever}, 900);
  addToAll(ranks, 1, {kNever, 300}, 200);
  EXPECT_EQ(activities(ranks)[0].waited, 100u);
}

TEST(Activity, RootsAndLeavesWaitAsTheCollectiveSays) {
  auto ranks = someRanks(3);
  addToAll(ranks, 1, {1000, 800, 600}, 100, Collective::kBroadcast, 1);
  auto got = activities(ranks);
  EXPECT_EQ(got[0].waitedFor, (Waits{{1, 200}}));
  EXPECT_EQ(got[1].waited, 0u) << "a root of a broadcast waits for nobody";
  EXPECT_EQ(got[2].waited, 0u);
  ranks = someRanks(3);
  addToAll(ranks, 1, {1000, 800, 600}, 100, Collective::kReduce, 1);
  got = activities(ranks);
  EXPECT_EQ(got[0].waited, 0u) << "a leaf of a reduction waits for nobody";
  EXPECT_EQ(got[1].waitedFor, (Waits{{2, 200}}));
}

TEST(Activity, WhatCannotBeComparedIsNotGuessed) {
  auto ranks = someRanks(2);
  addToAll(ranks, 1, {1000, 500}, 450);
  ranks[1].bootId[0] = 2;
  EXPECT_EQ(activities(ranks)[0].window, 0u) << "two hosts have two counters";
  ranks = someRanks(2);
  addToAll(ranks, 1, {1000, 500}, 450);
  for (FlightSnapshot& one : ranks) one.operations[0].enqueued = true;
  EXPECT_EQ(activities(ranks)[0].window, 0u) << "entering an operation of a GPU is not starting it";
  ranks = someRanks(2);
  addToAll(ranks, 1, {1000, kNever}, 900);
  addToAll(ranks, 2, {800, 700}, 600);
  EXPECT_EQ(activities(ranks)[0].waited, 100u) << "#1 is forgotten by rank 1, so only #2 counts";
}

TEST(WatchApi, SaysWhatHasChanged) {
  unsetenv("STRETTO_FLIGHT_DIR");
  auto recorder = FlightRecorder::open({currentIdentity().value(), 5, 0, 1, "0.1.0"});
  ASSERT_TRUE(recorder.ok()) << lastError();
  strettoWatch_t watch = nullptr;
  ASSERT_EQ(strettoWatchOpen(std::to_string(getpid()).c_str(), &watch), ncclSuccess)
      << ncclGetLastError(nullptr);
  const auto member = [&] {
    const char* text = nullptr;
    EXPECT_EQ(strettoWatchRead(watch, &text), ncclSuccess);
    auto parsed = json::parse(text);
    EXPECT_TRUE(parsed.ok()) << lastError();
    return parsed.value().find("communicators")->items().front().find("members")->items().front();
  };
  EXPECT_EQ(member().find("begun")->number(), 0);
  FlightRecord record;
  record.sequence = 1;
  record.count = 1000;
  record.startTicks = platform::ticks();
  const uint64_t place = recorder.value().begin(record);
  const auto running = member();
  EXPECT_EQ(running.find("begun")->number(), 1);
  EXPECT_EQ(running.find("bytes")->number(), 4000);
  EXPECT_EQ(running.find("operation")->textAt("state", 20).value(), "running");
  EXPECT_EQ(running.find("operation")->textAt("text", 99).value(), "#1 all_reduce float32 x 1000");
  recorder.value().end(place, kOkStatus, platform::ticks());
  EXPECT_EQ(member().find("operation")->textAt("state", 20).value(), "done");
  EXPECT_EQ(strettoWatchClose(watch), ncclSuccess);
}

TEST(WatchApi, RefusesWithASentence) {
  strettoWatch_t watch = nullptr;
  const char* text = nullptr;
  EXPECT_EQ(strettoWatchOpen(nullptr, &watch), ncclInvalidArgument);
  EXPECT_EQ(strettoWatchOpen("1,", &watch), ncclInvalidArgument);
  EXPECT_EQ(strettoWatchOpen("99999999", &watch), ncclInvalidArgument);
  EXPECT_EQ(strettoWatchOpen(std::to_string(getpid()).c_str(), &watch), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("no flight recorder"), std::string::npos);
  EXPECT_EQ(strettoWatchRead(nullptr, &text), ncclInvalidArgument);
  EXPECT_EQ(strettoWatchClose(nullptr), ncclSuccess);
}

}  // namespace
}  // namespace stretto::observe
