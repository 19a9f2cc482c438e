// Rule 1 and rule 2 of docs/decisions/0023 in every interleaving: who returns success from a direct operation
// has read nothing wrong, nobody reads a buffer after its owner has returned, and nobody is stuck when all
// who live have been told. And what goes wrong without each part of the rules, with the shortest run.
#include "model/direct_end.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "model/search.hpp"

namespace stretto::model {
namespace {

constexpr const char* kLate = "a buffer was read after its owner had returned";
constexpr const char* kWrongData = "reports success with wrong data";
constexpr const char* kStuck = "is stuck";

DirectSetting gather(int ranks) {
  DirectSetting setting;
  setting.ranks = ranks;
  return setting;
}

// Heavy fences of owners and light ones of readers, or full ones of both.
void setFences(DirectSetting& setting, bool asymmetric) {
  setting.heavyFence = asymmetric;
  setting.fenceAtBegin = !asymmetric;
}

void expectRight(const std::string& name, const DirectSetting& setting) {
  expectRight(name, DirectModel(setting));
}

void expectWrong(const std::string& name, const DirectSetting& setting, const std::string& how) {
  expectWrong(name, DirectModel(setting), how);
}

using Tires = DirectSetting::Tires;

std::string inWords(const DirectSetting& setting) {
  const std::string tires = setting.tires == Tires::kNever       ? ""
                            : setting.tires == Tires::kOfWaiting ? ", owners tire of who waits"
                                                                 : ", owners tire";
  return (setting.reduces ? "all-reduce, " : "all-gather, ") + std::to_string(setting.ranks) + " ranks" +
         (setting.heavyFence ? ", heavy fences" : "") + tires;
}

void expectRightOfTwo(bool asymmetric) {
  for (const Tires tires : {Tires::kNever, Tires::kOfWaiting, Tires::kOfAnybody}) {
    for (const bool reduces : {false, true}) {
      DirectSetting setting = gather(2);
      setFences(setting, asymmetric);
      setting.reduces = reduces;
      setting.pieces = 3;
      setting.tires = tires;
      setting.deaths = setting.aborts = setting.errors = 2;
      expectRight(inWords(setting) + ", any faults", setting);
    }
  }
}

TEST(DirectEnd, TwoRanks) {
  expectRightOfTwo(false);
}
TEST(DirectEnd, TwoRanksWithHeavyFences) {
  expectRightOfTwo(true);
}

void expectRightOfThree(bool asymmetric) {
  for (const Tires tires : {Tires::kNever, Tires::kOfWaiting, Tires::kOfAnybody}) {
    for (const bool reduces : {false, true}) {
      DirectSetting setting = gather(3);
      setFences(setting, asymmetric);
      setting.reduces = reduces;
      setting.tires = tires;
      setting.aborts = setting.errors = 0;
      expectRight(inWords(setting) + ", a death", setting);
      setting.aborts = std::exchange(setting.deaths, 0);
      expectRight(inWords(setting) + ", an abort", setting);
      setting.errors = std::exchange(setting.aborts, 0);
      expectRight(inWords(setting) + ", an error", setting);
    }
  }
}

TEST(DirectEnd, ThreeRanks) {
  expectRightOfThree(false);
}
TEST(DirectEnd, ThreeRanksWithHeavyFences) {
  expectRightOfThree(true);
}

// ---- what each rule is for

// Where only wrong data counts, not that it was read late.
DirectSetting forData(DirectSetting setting) {
  setting.tires = Tires::kOfAnybody;
  setting.lateIsWrong = false;
  return setting;
}

TEST(DirectEnd, BrokenWithoutALookAfterTheReads) {
  DirectSetting setting = forData(gather(2));
  setting.verifies = false;
  expectWrong("all-gather, nobody looks after the reads", setting, kWrongData);
  setting.reduces = true;
  expectWrong("all-reduce, nobody looks after the reads", setting, kWrongData);
}

TEST(DirectEnd, BrokenWhenTheLastReadComesAfterTheLook) {
  DirectSetting setting = forData(gather(2));
  setting.readsBeforeVerifying = false;
  expectWrong("the last read comes after the look", setting, kWrongData);
}

TEST(DirectEnd, BrokenWithoutALookAtTheBegin) {
  DirectSetting setting = gather(2);
  setting.looksAtBegin = false;
  expectWrong("nobody looks before the first read", setting, kLate);
}

// An owner may have its buffers back while a reader waits for somebody else's result.
TEST(DirectEnd, BrokenWithoutALookAfterAWait) {
  DirectSetting setting = gather(3);
  setting.reduces = true;
  setting.tires = Tires::kOfWaiting;
  setting.looksAfterWaits = false;
  setting.deaths = setting.errors = 0;
  expectWrong("nobody looks after a wait for a result", setting, kLate);
}

// Who waits for a result says that it reads. The owner of that result waits for its readers, so one of the
// two must see that the other has failed, or be tired.
TEST(DirectEnd, BrokenWhenAnOwnerAndItsReaderWaitForEachOther) {
  DirectSetting setting = gather(2);
  setting.reduces = true;
  setting.waitsSeeFailures = false;
  expectWrong("waits do not see who has failed", setting, kStuck);
  setting.tires = Tires::kOfWaiting;
  expectRight("the same, owners tire of who waits", setting);
}

TEST(DirectEnd, BrokenWithoutAFenceAtTheBegin) {
  DirectSetting setting = gather(2);
  setting.fenceAtBegin = false;
  expectWrong("no fence before the first look", setting, kLate);
}

TEST(DirectEnd, BrokenWithoutAFenceBeforeReadersAreAwaited) {
  DirectSetting setting = gather(2);
  setting.fenceAtAwait = false;
  expectWrong("no fence before readers are awaited", setting, kLate);
}

TEST(DirectEnd, BrokenWhenAHeavyFenceLeavesItsOwnerOut) {
  DirectSetting setting = gather(2);
  setFences(setting, true);
  setting.fenceAtAwait = false;
  expectWrong("an owner's failure lingers while its readers pass their fences", setting, kLate);
}

TEST(DirectEnd, BrokenWithoutAwaitingReaders) {
  DirectSetting setting = gather(2);
  setting.awaitsReaders = false;
  expectWrong("readers are not awaited", setting, kLate);
}

TEST(DirectEnd, BrokenWhenAFailureIsSaidTooLate) {
  DirectSetting setting = gather(2);
  setting.saysFailedFirst = false;
  expectWrong("a failure is said when the caller has its buffers back", setting, kLate);
  expectWrong("the same", forData(setting), kWrongData);
}

TEST(DirectEnd, BrokenWhenTheEndIsSignalledBeforeTheLastRead) {
  DirectSetting setting = gather(2);
  setting.readsBeforeSignalling = false;
  expectWrong("the end is signalled before the last read", setting, kLate);
  expectWrong("the same", forData(setting), kWrongData);
}

// What a rank signals before it has looked is taken by nobody for good: whoever depends on it looks at the
// same peers, and later. So results may be signalled at once (ownShard does), and the order of the two at the
// end is free; that the look comes first makes more ranks agree that the operation has failed.
TEST(DirectEnd, HoldsWhenTheEndIsSignalledBeforeTheLook) {
  for (const bool reduces : {false, true}) {
    DirectSetting setting = gather(2);
    setting.reduces = reduces;
    setting.tires = Tires::kOfAnybody;
    setting.verifiesBeforeSignalling = false;
    setting.deaths = setting.aborts = setting.errors = 2;
    expectRight("the end is signalled before the look, 2 ranks", setting);
    setting.ranks = 3;
    setting.deaths = setting.errors = 0;
    setting.aborts = 1;
    expectRight("the end is signalled before the look, 3 ranks, an abort", setting);
    setting.errors = std::exchange(setting.aborts, 0);
    expectRight("the end is signalled before the look, 3 ranks, an error", setting);
  }
}

TEST(DirectEnd, BrokenWhenTheDeadAreAwaited) {
  DirectSetting setting = gather(2);
  setting.forgivesLost = false;
  expectWrong("an owner waits for readers that are lost", setting, kStuck);
}

TEST(DirectEnd, BrokenWhenAnAbortIsTooSoonALoss) {
  DirectSetting setting = gather(2);
  setting.quietBeforeLost = false;
  expectWrong("an abort is told as a loss while its rank may read", setting, kLate);
}

}  // namespace
}  // namespace stretto::model
