// Links with credits: what operations use in which a rank does not hear from every other (send, receive,
// broadcast, reduce, gather, scatter, rings and trees), in every interleaving; and what goes wrong without
// one of their rules.
#include "model/links.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"

namespace stretto::model {
namespace {

TEST(Links, CreditsAreSafeAtEveryDepth) {
  for (int depth : {1, 2, 3}) {
    for (int creditEvery = 1; creditEvery <= depth; ++creditEvery) {
      for (bool lines : {false, true}) {
        LinkSetting setting;
        setting.depth = depth;
        setting.creditEvery = creditEvery;
        setting.lines = lines;
        setting.words = 2;
        std::string name = lines ? "link of lines" : "link of chunks";
        expectSafe(
            name + ", depth " + std::to_string(depth) + ", credit every " + std::to_string(creditEvery),
            linksModel(setting, {broadcastChain}));
      }
    }
  }
}

TEST(Links, TheSenderIsAtMostTheDepthAhead) {
  for (int depth : {1, 2, 3}) {
    LinkSetting setting;
    setting.depth = depth;
    EXPECT_EQ(explore(linksModel(setting, {broadcastChain})).largestLead, depth);
  }
}

TEST(Links, Chains) {
  LinkSetting setting{3, 6, 2, 2};
  expectSafe("broadcast along 3 ranks, 2 words", linksModel(setting, {broadcastChain}));
  setting = {4, 6, 2, 1};
  expectSafe("broadcast along 4 ranks", linksModel(setting, {broadcastChain}));
}

// The library's proportions (credit every half depth, results half a depth behind) at a smaller depth; three
// operations, so that chunks stay unacknowledged between them.
TEST(Links, AllReduceOverLinks) {
  LinkSetting setting{3, 5, 4, 1, 2};
  setting.lag = 2;
  expectSafe("all-reduce up and down 3 ranks, depth 4", linksModel(setting, {allReduceChain}), {true});
  setting.messages = 3;
  expectSafe("three of them", linksModel(setting, {allReduceChain, allReduceChain, allReduceChain}), {true});
  setting.messages = 2;
  expectSafe("ring, 3 ranks, depth 4", linksModel(setting, {allReduceRing, allReduceRing}), {true});
  expectSafe("ring both ways, 3 ranks, depth 4",
             linksModel(setting, {allReduceRingBothWays, allReduceRingBothWays}), {true});
  expectSafe("pairwise all-to-all, 3 ranks, depth 4", linksModel(setting, {allToAllPairwise}), {true});
  expectSafe("broadcast, all-reduce, ring",
             linksModel(setting, {broadcastChain, allReduceChain, allReduceRing}), {true});
}

// A strand of a GPU has two places of a link, and gives credit for each (docs/decisions/0015); with one it
// would hold what came in while it waits for room for what goes out, as would everybody else.
TEST(Links, RingsNeedTwoPlaces) {
  for (const auto ring : {allReduceRing, allReduceRingBothWays}) {
    const char* const name = ring == allReduceRing ? "ring" : "ring both ways";
    LinkSetting setting{3, 2, 2};
    expectSafe(std::string(name) + ", 3 ranks, two places", linksModel(setting, {ring}), {true});
    setting = {4, 1, 2};
    expectSafe(std::string(name) + ", 4 ranks, two places", linksModel(setting, {ring}), {true});
    setting = {3, 1, 1};
    expectBroken(std::string(name) + ", 3 ranks, one place", linksModel(setting, {ring}), &Verdict::deadlock);
  }
}

TEST(Links, BrokenWithoutCredits) {
  LinkSetting setting;
  setting.credits = false;
  setting.messages = 3;
  expectBroken("link without credits", linksModel(setting, {broadcastChain}), &Verdict::wrongPayload);
  setting.lines = true;
  expectBroken("link of lines without credits", linksModel(setting, {broadcastChain}),
               &Verdict::wrongPayload);
}

TEST(Links, BrokenWithoutRelease) {
  LinkSetting setting;
  setting.signalReleases = false;
  setting.messages = 2;
  expectBroken("link whose signal overtakes its payload", linksModel(setting, {broadcastChain}),
               &Verdict::wrongPayload);
}

TEST(Links, BrokenWithCreditTooSeldom) {
  LinkSetting setting;
  setting.messages = 4;
  setting.creditEvery = setting.depth + 1;
  expectBroken("credit less often than the ring is deep", linksModel(setting, {broadcastChain}),
               &Verdict::deadlock);
}

// More messages than the ring holds, both ways, sent before any is received: the credits never come.
TEST(Links, BrokenWhenSendsWaitForEachOther) {
  LinkSetting setting;
  setting.messages = setting.depth;
  expectSafe("crossed sends that fit the ring", linksModel(setting, {crossedSends}));
  setting.messages = setting.depth + 1;
  expectBroken("crossed sends that do not", linksModel(setting, {crossedSends}), &Verdict::deadlock);
}

}  // namespace
}  // namespace stretto::model
