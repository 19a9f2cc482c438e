// Is the checker itself right? Litmus tests of its memory model, counts that can be worked out by hand, one
// model for each kind of violation, and the reduced search against the full one.
#include "model/check.hpp"

namespace stretto::model {
namespace {

Step put(int rank, int cell, Tag tag) {
  return {Verb::kPut, rank, cell, 0, tag};
}
Step read(int rank, int cell, Tag tag) {
  return {Verb::kRead, rank, cell, 0, tag};
}
Step line(int rank, int cell, Tag tag) {
  return {Verb::kPutLine, rank, cell, 0, tag};
}
Step readLine(int rank, int cell, Tag tag) {
  return {Verb::kReadLine, rank, cell, tag.epoch, tag};
}
Step signalTo(int rank, bool ordered = true) {
  return {Verb::kSignal, rank, 0, 1, {}, Ready::kAtLeast, ordered};
}
Step wait(int rank, int value) {
  return {Verb::kWait, rank, 0, value, {}};
}

Model twoRanks(std::vector<Step> first, std::vector<Step> second) {
  return {2, 2, 1, "epoch", {{0, 0, std::move(first)}, {1, 0, std::move(second)}}};
}

TEST(Checker, CountsIndependentStepsAsAProduct) {
  // A put is not issued, on its way, or landed: 3 states; two of them that never meet: 3 * 3, one of them the
  // end.
  Verdict verdict = explore(twoRanks({put(1, 0, {0, 1, 0})}, {put(0, 0, {1, 1, 0})}));
  EXPECT_TRUE(verdict.holds());
  EXPECT_EQ(verdict.states, 9u);
  EXPECT_EQ(verdict.moves, 12u);
  EXPECT_EQ(verdict.ends, 1u);
}

TEST(Checker, TwoPutsMayLandInEitherOrder) {
  // Issued 0, 1 or 2; the landed ones are any subset of the issued ones: 1 + 2 + 4.
  Verdict verdict = explore(twoRanks({put(1, 0, {0, 1, 0}), put(1, 1, {0, 1, 1})}, {}));
  EXPECT_EQ(verdict.states, 7u);
  EXPECT_EQ(verdict.ends, 1u);
}

TEST(Checker, PutsToOneCellLandInProgramOrder) {
  Tag old{0, 1, 0}, young{0, 2, 0};
  Verdict verdict = explore(twoRanks({put(1, 0, old), put(1, 0, young)}, {}));
  EXPECT_TRUE(verdict.holds());
  EXPECT_EQ(verdict.states, 6u) << "issued 0, 1, 2 with 0 to that many landed, in order";
}

TEST(Checker, MessagePassingNeedsTheRelease) {
  Tag tag{0, 1, 0};
  EXPECT_TRUE(explore(twoRanks({put(1, 0, tag), signalTo(1)}, {wait(1, 1), read(1, 0, tag)})).holds());
  EXPECT_FALSE(
      explore(twoRanks({put(1, 0, tag), signalTo(1, false)}, {wait(1, 1), read(1, 0, tag)})).holds());
  // A release covers what came before it, not what comes after.
  EXPECT_FALSE(explore(twoRanks({signalTo(1), put(1, 0, tag)}, {wait(1, 1), read(1, 0, tag)})).holds());
}

TEST(Checker, ALineNeedsNoReleaseButSaysNothingOfAnother) {
  Tag first{0, 1, 0}, second{0, 1, 1};
  std::vector<Step> writer{line(1, 0, first), line(1, 1, second)};
  EXPECT_TRUE(explore(twoRanks(writer, {readLine(1, 1, second), readLine(1, 0, first)})).holds());
  EXPECT_FALSE(explore(twoRanks(writer, {readLine(1, 1, second), read(1, 0, first)})).holds());
}

TEST(Checker, FindsADeadlockAndSaysWhoWaits) {
  Verdict verdict = explore(twoRanks({wait(0, 1)}, {wait(1, 1), signalTo(0)}));
  EXPECT_NE(verdict.deadlock.find("stuck: rank 0"), std::string::npos) << verdict.deadlock;
  EXPECT_NE(verdict.deadlock.find("stuck: rank 1"), std::string::npos) << verdict.deadlock;
}

TEST(Checker, FindsALostUpdateEvenIfNobodyNoticesIt) {
  Tag old{0, 1, 0}, young{0, 2, 0};
  Verdict verdict = explore(twoRanks({line(1, 0, old), line(1, 0, young)}, {readLine(1, 0, old)}));
  EXPECT_FALSE(verdict.lostUpdate.empty());
}

TEST(Checker, GivesTheShortestTrace) {
  // Signal, its landing, wait, read: the put need not even be issued.
  Tag tag{0, 1, 0};
  Verdict verdict = explore(twoRanks({signalTo(1), put(1, 0, tag)}, {wait(1, 1), read(1, 0, tag)}));
  EXPECT_EQ(std::count(verdict.wrongPayload.begin(), verdict.wrongPayload.end(), '\n'), 4)
      << verdict.wrongPayload;
}

TEST(Checker, DoesNotPassWhatItDidNotFinish) {
  Setting setting;
  setting.operations.assign(4, Operation{});
  EXPECT_TRUE(explore(slotsModel(setting), {false, 1000}).holds());
  EXPECT_FALSE(explore(slotsModel(setting), {false, 10}).holds());
}

// Every combination of shape, protocol, slots and fault, small enough for both searches.
std::vector<Setting> manySettings() {
  std::vector<Setting> settings;
  for (Collective collective :
       {Collective::kOneShot, Collective::kTwoShot, Collective::kBroadcast, Collective::kReduce}) {
    for (Protocol protocol : {Protocol::kLL, Protocol::kSimple, Protocol::kLamport}) {
      for (int shape = 0; shape < 16; ++shape) {
        Setting setting;
        setting.ranks = shape & 1 ? 3 : 2;
        setting.slots = shape & 2 ? 2 : 1;
        int fault = shape >> 2;
        setting.signalReleases = fault != 1;
        setting.readsLinger = fault == 2;
        setting.flushed = fault != 3;
        bool small = collective == Collective::kTwoShot;
        if (setting.ranks == 3 && (small || setting.readsLinger)) continue;
        Operation operation{collective, setting.ranks == 3 || small ? 1 : 2, protocol};
        setting.operations.assign(setting.ranks == 3 ? 2 : 3, operation);
        settings.push_back(setting);
      }
    }
  }
  return settings;
}

TEST(Checker, TheReductionChangesNoVerdict) {
  int safe = 0, broken = 0;
  for (const Setting& setting : manySettings()) {
    Model model = slotsModel(setting);
    Verdict full = explore(model), reduced = explore(model, {true});
    EXPECT_EQ(full.holds(), reduced.holds()) << problemsOf(full) << "\n" << problemsOf(reduced);
    EXPECT_TRUE(full.complete || !(full.wrongPayload + full.lostUpdate + full.deadlock).empty());
    EXPECT_LE(reduced.states, full.states);
    if (full.holds()) {
      EXPECT_EQ(full.ends, reduced.ends);
    }
    ++(full.holds() ? safe : broken);
  }
  EXPECT_GT(safe, 20);
  EXPECT_GT(broken, 20);
  std::printf("  %d models hold, %d do not\n", safe, broken);
}

}  // namespace
}  // namespace stretto::model
