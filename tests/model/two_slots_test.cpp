// Two slots suffice (docs/design.md, 4), checked in every interleaving and every order of landing; and each
// condition of the argument is needed, shown by taking it away and printing the shortest run that goes wrong.
#include <gtest/gtest.h>

#include <vector>

#include "model/check.hpp"

namespace stretto::model {
namespace {

using enum Collective;
using enum Protocol;

Setting uniform(int ranks, int epochs, Operation operation) {
  Setting setting;
  setting.ranks = ranks;
  setting.operations.assign(epochs, operation);
  return setting;
}

Setting sequence(int ranks, std::vector<Operation> operations) {
  Setting setting;
  setting.ranks = ranks;
  setting.operations = std::move(operations);
  return setting;
}

// ---- what holds

TEST(TwoSlots, OneShot) {
  expectSafe("one-shot, lines, 2 ranks, 8 epochs, 3 lines", slotsModel(uniform(2, 8, {kOneShot, 3, kLL})));
  expectSafe("one-shot, chunks, 2 ranks, 8 epochs, 3 words",
             slotsModel(uniform(2, 8, {kOneShot, 3, kSimple})));
  expectSafe("one-shot, lines, 3 ranks, 3 epochs, 2 lines", slotsModel(uniform(3, 3, {kOneShot, 2, kLL})),
             {true});
  expectSafe("one-shot, chunks, 3 ranks, 4 epochs, 1 word",
             slotsModel(uniform(3, 4, {kOneShot, 1, kSimple})));
  expectSafe("one-shot, chunks, 3 ranks, 3 epochs, 2 words",
             slotsModel(uniform(3, 3, {kOneShot, 2, kSimple})), {true});
}

TEST(TwoSlots, TwoShot) {
  expectSafe("two-shot, lines, 2 ranks, 8 epochs, 3 lines", slotsModel(uniform(2, 8, {kTwoShot, 3, kLL})));
  expectSafe("two-shot, chunks, 2 ranks, 8 epochs, 3 words",
             slotsModel(uniform(2, 8, {kTwoShot, 3, kSimple})));
  expectSafe("two-shot, lines, 3 ranks, 4 epochs, 1 line", slotsModel(uniform(3, 4, {kTwoShot, 1, kLL})));
  expectSafe("two-shot, chunks, 3 ranks, 4 epochs, 1 word", slotsModel(uniform(3, 4, {kTwoShot, 1, kSimple})),
             {true});
}

TEST(TwoSlots, FourRanks) {
  expectSafe("one-shot, lines, 4 ranks, 3 epochs, 1 line", slotsModel(uniform(4, 3, {kOneShot, 1, kLL})),
             {true});
}

TEST(TwoSlots, RingWithARegionForEachStep) {
  expectSafe("ring, lines, 3 ranks, 4 epochs, 2 lines", slotsModel(uniform(3, 4, {kRing, 2, kLL})));
  expectSafe("ring, chunks, 4 ranks, 3 epochs, 1 word", slotsModel(uniform(4, 3, {kRing, 1, kSimple})),
             {true});
}

TEST(TwoSlots, NoRankIsEverMoreThanOneOperationAhead) {
  for (Collective collective : {kOneShot, kTwoShot, kRing}) {
    EXPECT_EQ(explore(slotsModel(uniform(3, 3, {collective, 1, kLL}))).largestLead, 1);
  }
  EXPECT_GT(explore(slotsModel(uniform(3, 3, {kBroadcast, 1, kLL}))).largestLead, 1);
}

// The same states come again two epochs later, so what holds for these epochs holds for every later one.
TEST(TwoSlots, HoldsForAnyNumberOfOperations) {
  struct Case {
    int ranks, from, period;
    std::vector<Operation> operations;
  };
  std::vector<Case> cases;
  for (Protocol protocol : {kLL, kSimple, kLamport}) {
    for (Collective collective : {kOneShot, kTwoShot}) {
      cases.push_back({2, 3, 2, {{collective, 2, protocol}}});
      if (protocol == kLL || collective == kOneShot) cases.push_back({3, 3, 2, {{collective, 1, protocol}}});
    }
    cases.push_back({2,
                     5,
                     4,
                     {{kOneShot, 2, protocol},
                      {kTwoShot, 1, protocol},
                      {kTwoShot, 2, protocol},
                      {kOneShot, 1, protocol}}});
    cases.push_back({2, 7, 6, {{kOneShot, 2, protocol}, {kTwoShot, 1, protocol}, {kOneShot, 1, protocol}}});
  }
  for (const Case& c : cases) {
    Setting setting;
    setting.ranks = c.ranks;
    for (int epoch = 0; epoch < c.from + c.period + 2; ++epoch) {
      setting.operations.push_back(c.operations[epoch % c.operations.size()]);
    }
    Model model = slotsModel(setting);
    Explorer explorer(model, {});
    Verdict verdict = explorer.run();
    EXPECT_TRUE(verdict.holds()) << problemsOf(verdict);
    auto shapes = explorer.shapesAt(c.from);
    EXPECT_FALSE(shapes.empty());
    EXPECT_EQ(shapes, explorer.shapesAt(c.from + c.period));
    std::printf("  %d ranks, %2zu operations, period %d: %zu states, %zu shapes recur\n", c.ranks,
                setting.operations.size(), c.period, verdict.states, shapes.size());
  }
}

// ---- different operations after each other

// Every sequence of `length` operations from the alphabet: larger after smaller, one kind over another's
// layout.
void expectEverySequenceSafe(const char* name, int ranks, int length, const std::vector<Operation>& alphabet,
                             bool reduce) {
  testing::Watchdog watchdog(name, 300);
  size_t sequences = 1, states = 0;
  for (int i = 0; i < length; ++i) sequences *= alphabet.size();
  for (size_t number = 0; number < sequences; ++number) {
    Setting setting;
    setting.ranks = ranks;
    for (size_t rest = number; setting.operations.size() < static_cast<size_t>(length);
         rest /= alphabet.size()) {
      setting.operations.push_back(alphabet[rest % alphabet.size()]);
    }
    Verdict verdict = explore(slotsModel(setting), {reduce});
    ASSERT_TRUE(verdict.holds()) << name << ", sequence " << number << "\n" << problemsOf(verdict);
    states += verdict.states;
  }
  std::printf("  %-58s %9zu states in %zu sequences\n", name, states, sequences);
}

TEST(TwoSlots, AnySequenceOfOperations) {
  expectEverySequenceSafe("2 ranks, 5 operations of 4 kinds and sizes, lines", 2, 5,
                          {{kOneShot, 1}, {kOneShot, 2}, {kTwoShot, 1}, {kTwoShot, 2}}, false);
  expectEverySequenceSafe("2 ranks, 4 operations of 6 kinds, lines and chunks", 2, 4,
                          {{kOneShot, 1},
                           {kOneShot, 2},
                           {kTwoShot, 2},
                           {kOneShot, 1, kSimple},
                           {kOneShot, 2, kSimple},
                           {kTwoShot, 2, kSimple}},
                          false);
  expectEverySequenceSafe("3 ranks, 3 operations of 4 kinds, lines and chunks", 3, 3,
                          {{kOneShot, 1}, {kTwoShot, 1}, {kOneShot, 1, kSimple}, {kRing, 1}}, true);
}

TEST(TwoSlots, StaleFlagsOfALargerOperationAreNotReady) {
  expectSafe(
      "3 lines, then 1, 1, 2, 3: stale flags stay behind",
      slotsModel(sequence(
          2, {{kOneShot, 3}, {kOneShot, 3}, {kOneShot, 1}, {kOneShot, 1}, {kOneShot, 2}, {kOneShot, 3}})));
}

// Fewer elements than ranks: some owners have nothing to reduce, and still every rank hears of every other.
TEST(TwoSlots, TwoShotWithEmptyShards) {
  for (int owners : {1, 2}) {
    Setting setting = uniform(3, 4, {kTwoShot, 1, kLL, owners});
    expectSafe("two-shot, 3 ranks, " + std::to_string(owners) + " shards not empty", slotsModel(setting));
    setting.operations = {
        {kOneShot, 1}, {kTwoShot, 1, kLL, owners}, {kOneShot, 1}, {kTwoShot, 1, kLL, owners}};
    expectSafe("the same between one-shots", slotsModel(setting));
  }
}

// Buffers that peers read in place are not in slots.
TEST(TwoSlots, DirectNeedsItsEndBarrier) {
  Setting setting =
      sequence(2, {{kDirect}, {kOneShot}, {kDirect}, {kDirect}, {kOneShot}, {kOneShot}, {kDirect}});
  expectSafe("direct among one-shots, 2 ranks", slotsModel(setting));
  expectSafe("direct, 3 ranks, 3 epochs", slotsModel(uniform(3, 3, {kDirect})), {true});
  setting.endBarrier = false;
  expectBroken("direct without its end barrier", slotsModel(setting), &Verdict::wrongPayload);
}

// ---- what a rank is made of

// Coops of a rank work apart; lines move from coop to coop when the number of blocks or the size changes.
// A coop for each line: the lines of one operation are sent and read in any order.
TEST(TwoSlots, LinesInAnyOrder) {
  Setting setting = uniform(2, 5, {kOneShot, 3, kLL});
  setting.coops = 3;
  expectSafe("one-shot, 3 coops with a line each", slotsModel(setting));
  setting = uniform(2, 4, {kTwoShot, 2, kSimple});
  setting.coops = 2;
  expectSafe("two-shot, 2 coops with a word and a signal each", slotsModel(setting));
}

// Coops of a rank work apart; lines move from coop to coop when the number of blocks or the size changes.
TEST(TwoSlots, CoopsThatShareLinesNeedTheRankToFinishFirst) {
  Setting setting = sequence(2, {{kOneShot, 2}, {kOneShot, 2}, {kOneShot, 2, kLL, 0, 1}, {kOneShot, 2}});
  setting.coops = 2;
  expectSafe("2 coops, lines change hands, launches in order", slotsModel(setting));
  setting.joined = false;
  expectBroken("2 coops, lines change hands, a coop begins e + 1 alone", slotsModel(setting),
               &Verdict::wrongPayload);
  setting.operations.assign(4, {kOneShot, 2});
  expectSafe("2 coops, each with its own lines for ever, alone", slotsModel(setting));
}

// The sentinel variant erases what it read. The erasure must have landed before the peer may send again.
TEST(TwoSlots, SentinelNeedsItsErasureToLandBeforeTheOperationEnds) {
  Setting setting = uniform(2, 5, {kOneShot, 2, kLamport});
  expectSafe("sentinel, erasure lands within the operation", slotsModel(setting));
  setting.flushed = false;
  expectBroken("sentinel, erasure may land later", slotsModel(setting), &Verdict::lostUpdate);
  expectBroken("sentinel, erasure may land later", slotsModel(setting), &Verdict::deadlock);
}

// A load that outlives its verb: harmless under a signal, which is a release; fatal where nothing waits for
// it.
TEST(TwoSlots, ReadLinesMustNotReturnBeforeItsLoadsAreDone) {
  Setting setting = uniform(2, 3, {kOneShot, 1, kSimple});
  setting.readsLinger = true;
  expectSafe("chunks, loads may linger", slotsModel(setting));
  setting.operations.assign(3, {kOneShot, 1, kLL});
  expectBroken("lines, loads may linger", slotsModel(setting), &Verdict::wrongPayload);
}

// ---- what does not hold: each of these must be found

TEST(Broken, OneSlot) {
  for (Protocol protocol : {kLL, kSimple}) {
    Setting setting = uniform(2, 2, {kOneShot, 2, protocol});
    setting.slots = 1;
    std::string trace = expectBroken("one slot", slotsModel(setting), &Verdict::wrongPayload);
    EXPECT_NE(trace.find("for (epoch 1, "), std::string::npos);
    EXPECT_NE(trace.find("finds (epoch 2, "), std::string::npos);
  }
}

// Two-shot alone would do with one slot, since its phases already take turns; a one-shot after it would not.
TEST(Broken, OneSlotIsEnoughForTwoShotAloneButNotForAMixture) {
  Setting setting = uniform(3, 3, {kTwoShot, 1, kLL});
  setting.slots = 1;
  expectSafe("one slot, two-shot only", slotsModel(setting));
  setting.operations = {{kTwoShot, 1}, {kOneShot, 1}, {kTwoShot, 1}};
  expectBroken("one slot, two-shot and one-shot", slotsModel(setting), &Verdict::wrongPayload);
}

TEST(Broken, FlagsComparedForDifference) {
  Setting setting = sequence(2, {{kOneShot, 2}, {kOneShot, 1}, {kOneShot, 1}, {kOneShot, 1}, {kOneShot, 2}});
  expectSafe("sizes 2 1 1 1 2, flag >= epoch", slotsModel(setting));
  setting.ready = Ready::kDiffers;
  expectBroken("sizes 2 1 1 1 2, flag != previous", slotsModel(setting), &Verdict::wrongPayload);
}

TEST(Broken, SignalThatOvertakesItsPayload) {
  Setting setting = uniform(2, 1, {kOneShot, 2, kSimple});
  setting.signalReleases = false;
  expectBroken("signal without release", slotsModel(setting), &Verdict::wrongPayload);
}

TEST(Broken, BroadcastInSlots) {
  expectBroken("broadcasts", slotsModel(uniform(2, 3, {kBroadcast, 1})), &Verdict::wrongPayload);
  expectBroken("reduces", slotsModel(uniform(2, 3, {kReduce, 1})), &Verdict::wrongPayload);
  // One is enough, between operations that are right by themselves.
  expectBroken("all-reduce, broadcast, all-reduce",
               slotsModel(sequence(2, {{kOneShot, 1}, {kBroadcast, 1}, {kOneShot, 1}})),
               &Verdict::wrongPayload);
}

// What does not go through the slots must not move them on: an operation over links, or one of no elements.
TEST(Broken, AnEpochForAnOperationOutsideTheSlots) {
  expectBroken("all-reduce, an epoch for nothing, all-reduce",
               slotsModel(sequence(2, {{kOneShot, 1}, {kNothing}, {kOneShot, 1}})), &Verdict::wrongPayload);
}

TEST(Broken, PayloadWhereAnotherProtocolLooksForFlags) {
  Setting setting = sequence(2, {{kOneShot, 1, kSimple}, {kOneShot, 1, kSimple}, {kOneShot, 1, kLL}});
  expectSafe("lines after chunks, each in its own region", slotsModel(setting));
  setting.ownRegion = false;
  expectBroken("lines after chunks, in the same region", slotsModel(setting), &Verdict::wrongPayload);
}

}  // namespace
}  // namespace stretto::model
