#include "planner/forced.hpp"

#include <gtest/gtest.h>

#include "base/scoped_variable.hpp"

namespace stretto::planner {
namespace {

using stretto::testing::ScopedVariable;

std::string refusalOfForced(std::string_view algorithms, std::string_view protocol = "") {
  setLastError("");
  const auto forced = Forced::parse(algorithms, protocol);
  EXPECT_EQ(forced.status().code, Code::kInvalidUsage) << algorithms << " " << protocol;
  return lastError();
}

TEST(Forced, NothingIsNothing) {
  const auto forced = Forced::parse("", "");
  ASSERT_TRUE(forced.ok());
  for (int i = 0; i < kCollectives; ++i) EXPECT_FALSE(forced.value().of(static_cast<Collective>(i)).any());
}

TEST(Forced, ABareNameIsForEveryCollectiveThatHasIt) {
  const auto forced = Forced::parse("ring", "");
  ASSERT_TRUE(forced.ok()) << lastError();
  for (const Collective c : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    EXPECT_EQ(forced.value().of(c).algorithm, Algorithm::kRing) << nameOf(c);
  }
  EXPECT_FALSE(forced.value().of(Collective::kBroadcast).any());
}

TEST(Forced, ANamedCollectiveGoesFirst) {
  const auto forced = Forced::parse("all_reduce:tree,ring,broadcast:chain", "");
  ASSERT_TRUE(forced.ok()) << lastError();
  EXPECT_EQ(forced.value().of(Collective::kAllReduce).algorithm, Algorithm::kTree);
  EXPECT_EQ(forced.value().of(Collective::kAllGather).algorithm, Algorithm::kRing);
  EXPECT_EQ(forced.value().of(Collective::kBroadcast).algorithm, Algorithm::kChain);
  EXPECT_FALSE(forced.value().of(Collective::kReduce).any());
}

TEST(Forced, BothEndsOfAMessageAreForcedAlike) {
  Forced forced;
  ASSERT_TRUE(forced.force("receive", "flat", "", 4096, 0).ok()) << lastError();
  EXPECT_EQ(forced.of(Collective::kSend).chunkBytes, 4096u);
  EXPECT_EQ(forced.of(Collective::kReceive).chunkBytes, 4096u);
}

TEST(Forced, RefusalsListWhatThereIs) {
  EXPECT_EQ(refusalOfForced("rong"),
            "STRETTO_ALGO: there is no algorithm \"rong\"; there are direct, local, one_shot, two_shot, "
            "ring, tree, pairwise, stages, push, flat, chain");
  EXPECT_EQ(refusalOfForced("all_reduce:chain"),
            "all_reduce has no algorithm \"chain\"; it has direct, local, one_shot, two_shot, ring, tree, "
            "pairwise, stages");
  EXPECT_EQ(
      refusalOfForced("all_deduce:ring"),
      "there is no collective \"all_deduce\"; there are all_reduce, reduce_scatter, all_gather, all_to_all, "
      "broadcast, reduce, gather, scatter, all_reduce_add_rms_norm, send, receive");
  EXPECT_EQ(refusalOfForced("", "wave"),
            "there is no protocol \"wave\"; there are ll, simple, ll128, lamport, warp_chunks, copy, "
            "pull, pull_nosync, pull_push");
  EXPECT_EQ(refusalOfForced("ring", "ll"),
            "all_reduce by ring has no protocol ll; the algorithms that have it are: one_shot, two_shot");
}

TEST(Forced, RefusesListsThatAreNotClear) {
  for (const char* list :
       {",", "ring,", ",ring", "ring,,tree", "ring, tree", "all_reduce:", ":ring", "all_reduce:ring:2",
        "Ring", "all_reduce:ring,all_reduce:ring", "all_reduce:ring,all_reduce:tree", "ring,tree"}) {
    refusalOfForced(list);
  }
  EXPECT_NE(refusalOfForced("all_reduce:ring,all_reduce:tree").find("two algorithms on all_reduce"),
            std::string::npos);
  EXPECT_LT(refusalOfForced(std::string(100000, 'x')).size(), 1024u);
  EXPECT_TRUE(Forced::parse("ring,chain", "").ok()) << "no collective has both";
}

TEST(Forced, AProtocolIsForEveryCollectiveThatHasIt) {
  const auto forced = Forced::parse("one_shot", "ll");
  ASSERT_TRUE(forced.ok()) << lastError();
  EXPECT_EQ(forced.value().of(Collective::kAllReduce).protocol, Protocol::kLL);
  EXPECT_EQ(forced.value().of(Collective::kAllReduce).algorithm, Algorithm::kOneShot);
  EXPECT_EQ(forced.value().of(Collective::kAllGather).protocol, Protocol::kLL);
  EXPECT_FALSE(forced.value().of(Collective::kBroadcast).any()) << "on a host it has no lines";
  EXPECT_EQ(Forced::parse("", "simple").value().of(Collective::kBroadcast).protocol, Protocol::kSimple);
}

TEST(Forced, ReadsTheEnvironment) {
  const ScopedVariable algo("STRETTO_ALGO", "all_reduce:ring");
  ScopedVariable proto("STRETTO_PROTO", "simple");
  const auto forced = Forced::load();
  ASSERT_TRUE(forced.ok()) << lastError();
  EXPECT_EQ(forced.value().of(Collective::kAllReduce).algorithm, Algorithm::kRing);
  EXPECT_EQ(forced.value().of(Collective::kAllReduce).protocol, Protocol::kSimple);
  proto.set("ll");
  EXPECT_EQ(Forced::load().status().code, Code::kInvalidUsage);
}

TEST(Force, ReplacesAndTakesBack) {
  Forced forced = Forced::parse("ring", "").value();
  ASSERT_TRUE(forced.force("all_reduce", "two_shot", "simple", 65536, 0).ok()) << lastError();
  EXPECT_EQ(forced.of(Collective::kAllReduce).algorithm, Algorithm::kTwoShot);
  EXPECT_EQ(forced.of(Collective::kAllReduce).chunkBytes, 65536u);
  EXPECT_EQ(forced.of(Collective::kAllGather).algorithm, Algorithm::kRing) << "the others stay";
  ASSERT_TRUE(forced.force("all_reduce", "", "", 0, 0).ok());
  EXPECT_FALSE(forced.of(Collective::kAllReduce).any());
}

TEST(Force, AChunkMeansChunks) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_reduce", "one_shot", "", 64, 0).ok()) << lastError();
  EXPECT_EQ(forced.of(Collective::kAllReduce).protocol, Protocol::kSimple);
}

// What users may still ask for by an old name.
TEST(Force, NamesWhatReplacedAFormerName) {
  Forced forced;
  EXPECT_FALSE(forced.force("all_reduce", "unreduced_ring", "", 0, 0).ok());
  EXPECT_NE(lastError().find("the ring that reduces is \"ring\""), std::string::npos) << lastError();
  EXPECT_NE(refusalOfForced("unreduced_ring").find("the ring that reduces is \"ring\""), std::string::npos);
  EXPECT_FALSE(forced.force("all_reduce", "two_shot", "pull_bulk", 0, 0).ok());
  EXPECT_NE(lastError().find("\"pull_push\""), std::string::npos) << lastError();
  EXPECT_FALSE(forced.force("all_reduce", "no_such", "", 0, 0).ok());
  EXPECT_EQ(lastError().find("There was one"), std::string::npos) << lastError();
}

TEST(Force, RefusesAndLeavesThingsAsTheyWere) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_reduce", "ring", "", 0, 0).ok());
  EXPECT_FALSE(forced.force("all_deduce", "ring", "", 0, 0).ok());
  EXPECT_FALSE(forced.force("all_reduce", "chain", "", 0, 0).ok());
  EXPECT_FALSE(forced.force("all_reduce", "ring", "wave", 0, 0).ok());
  EXPECT_FALSE(forced.force("all_reduce", "ring", "ll", 0, 0).ok());
  EXPECT_EQ(lastError(),
            "all_reduce by ring has no protocol ll; the algorithms that have it are: one_shot, two_shot");
  EXPECT_FALSE(forced.force("broadcast", "", "lamport", 0, 0).ok());
  EXPECT_EQ(lastError(), "broadcast has no protocol lamport; it has simple, ll, ll128, warp_chunks, copy");
  EXPECT_FALSE(forced.force("all_reduce", "one_shot", "ll", 64, 0).ok());
  EXPECT_FALSE(forced.force("all_reduce", "one_shot", "", 63, 0).ok());
  EXPECT_FALSE(forced.force("all_reduce", "one_shot", "", (size_t{1} << 30) + 64, 0).ok());
  EXPECT_EQ(forced.of(Collective::kAllReduce).algorithm, Algorithm::kRing);
  EXPECT_EQ(forced.of(Collective::kAllReduce).chunkBytes, 0u);
}

}  // namespace
}  // namespace stretto::planner
