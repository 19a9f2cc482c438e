// Links with credits: what operations use in which a rank does not hear from every other (send, receive,
// broadcast, reduce). A ring of `depth` messages, a data counter and a credit counter, in every interleaving;
// and what goes wrong without one of them.
#include <gtest/gtest.h>

#include "model/check.hpp"

namespace stretto::model {
namespace {

TEST(Links, CreditsAreSafeAtEveryDepth) {
  for (int depth : {1, 2, 3}) {
    for (Protocol protocol : {Protocol::kChunks, Protocol::kLines}) {
      LinkSetting setting;
      setting.messages = 8;
      setting.depth = depth;
      setting.protocol = protocol;
      std::string name = protocol == Protocol::kChunks ? "chunks" : "lines";
      expectSafe("link, " + name + ", depth " + std::to_string(depth), linkModel(setting));
    }
  }
}

TEST(Links, ChainOfLinksBroadcasts) {
  LinkSetting setting;
  setting.hops = 2;
  expectSafe("broadcast along a chain of 3 ranks", linkModel(setting));
  setting.hops = 3;
  setting.words = 1;
  expectSafe("broadcast along a chain of 4 ranks", linkModel(setting));
}

TEST(Links, TheProducerIsAtMostTheDepthAhead) {
  for (int depth : {1, 2, 3}) {
    LinkSetting setting;
    setting.depth = depth;
    EXPECT_EQ(explore(linkModel(setting)).largestLead, depth);
  }
}

TEST(Links, BrokenWithoutCredits) {
  LinkSetting setting;
  setting.credits = false;
  setting.messages = 3;
  expectBroken("link without credits", linkModel(setting), &Verdict::wrongPayload);
  setting.protocol = Protocol::kLines;
  expectBroken("link of lines without credits", linkModel(setting), &Verdict::wrongPayload);
}

TEST(Links, BrokenWithoutRelease) {
  LinkSetting setting;
  setting.signalReleases = false;
  setting.messages = 2;
  expectBroken("link whose signal overtakes its payload", linkModel(setting), &Verdict::wrongPayload);
}

// More messages than the ring holds, both ways, sent before any is received: the credits never come.
TEST(Links, SendsThatWaitForEachOtherDeadlock) {
  LinkSetting setting;
  setting.messages = setting.depth;
  expectSafe("crossed sends that fit the ring", crossedSendsModel(setting));
  setting.messages = setting.depth + 1;
  expectBroken("crossed sends that do not", crossedSendsModel(setting), &Verdict::deadlock);
}

}  // namespace
}  // namespace stretto::model
