#include <gtest/gtest.h>

#include "base/json.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

TEST(Explain, ListsEveryAlgorithmOfTheCollectiveOnce) {
  for (int i = 0; i < kCollectives; ++i) {
    const Collective collective = static_cast<Collective>(i);
    const auto all = explain(exampleRequest(collective, 4096, 4), exampleMachine(), tableOf(""), {});
    size_t rows = 0;
    for (const Descriptor& row : algorithms::descriptors()) rows += row.collective == collective;
    EXPECT_EQ(all.size(), rows);
    size_t chosen = 0;
    for (const Candidate& one : all) {
      chosen += one.chosen;
      EXPECT_FALSE(one.reason.empty());
      EXPECT_TRUE(one.possible || !one.chosen);
    }
    EXPECT_EQ(chosen, 1u);
    EXPECT_TRUE(all[0].chosen) << "by the model, the fastest comes first";
  }
}

TEST(Explain, AgreesWithChoose) {
  const Table table = tableOf(entryText(rowText(65536, "tree", "simple")));
  Forced ring;
  ASSERT_TRUE(ring.force("all_reduce", "ring", "", 0, 0).ok());
  for (const Forced& forced : {Forced(), ring}) {
    for (size_t bytes = 1; bytes < size_t{1} << 28; bytes *= 2) {
      const Request request = exampleRequest(Collective::kAllReduce, bytes, 4);
      const Plan plan = choose(request, exampleMachine(), table, forced).value();
      for (const Candidate& one : explain(request, exampleMachine(), table, forced)) {
        if (!one.chosen) continue;
        EXPECT_EQ(one.plan, plan) << bytes;
      }
    }
  }
}

TEST(ExplainJson, HoldsTheWholeStory) {
  Request request = exampleRequest(Collective::kAllReduce, 1 << 20, 4);
  request.type = DataType::kBfloat16;
  const auto parsed = json::parse(explainJson(request, exampleMachine(), tableOf(""), {}));
  ASSERT_TRUE(parsed.ok()) << lastError();
  const json::Value& root = parsed.value();
  EXPECT_EQ(root.textAt("schema", 99).value(), "stretto.explain/1");
  EXPECT_EQ(root.find("request")->textAt("collective", 99).value(), "all_reduce");
  EXPECT_EQ(root.find("request")->textAt("type", 99).value(), "bfloat16");
  EXPECT_EQ(root.find("request")->integerAt("bytes", 0, 1 << 30).value(), 1 << 20);
  EXPECT_EQ(root.find("machine")->integerAt("slot_bytes", 0, 1 << 30).value(), 1 << 20);
  EXPECT_EQ(root.find("table")->textAt("hash", 99).value().size(), 16u);
  EXPECT_EQ(root.textAt("why", 99).value(), "model");
  EXPECT_EQ(root.find("error")->kind(), json::Kind::kNull);
  const json::Value& chosen = *root.find("chosen");
  const auto candidates = root.itemsAt("candidates", json::Kind::kObject, 99);
  ASSERT_TRUE(candidates.ok()) << lastError();
  ASSERT_EQ(candidates.value().size(), 10u);
  const json::Value& first = candidates.value()[0];
  EXPECT_EQ(first.textAt("algorithm", 99).value(), chosen.textAt("algorithm", 99).value());
  EXPECT_EQ(first.numberAt("predicted_us", 0, 1e9).value(), chosen.numberAt("predicted_us", 0, 1e9).value());
  EXPECT_TRUE(first.booleanAt("possible").value());
  EXPECT_EQ(first.textAt("reason", 99).value(), "fastest by the model");
  const json::Value& last = candidates.value().back();
  EXPECT_FALSE(last.booleanAt("possible").value());
  EXPECT_EQ(last.find("predicted_us")->kind(), json::Kind::kNull);
}

TEST(ExplainJson, TellsWhyNothingWasChosen) {
  Forced direct;
  ASSERT_TRUE(direct.force("all_reduce", "direct", "", 0, 0).ok());
  const std::string text =
      explainJson(exampleRequest(Collective::kAllReduce, 8, 4), exampleMachine(), tableOf(""), direct);
  const auto parsed = json::parse(text);
  ASSERT_TRUE(parsed.ok()) << lastError();
  EXPECT_EQ(parsed.value().find("chosen")->kind(), json::Kind::kNull);
  EXPECT_NE(parsed.value().find("error")->text().find("cannot run as forced"), std::string::npos);
}

TEST(ExplainJson, SaysHowARingGathers) {
  Forced ring;
  ASSERT_TRUE(ring.force("all_reduce", "ring", "", 0, 0).ok());
  for (const Directions directions : {Directions::kOneWay, Directions::kBothWays}) {
    Machine machine = exampleMachine();
    machine.directions = directions;
    const auto parsed = json::parse(
        explainJson(exampleRequest(Collective::kAllReduce, 1 << 20, 4), machine, tableOf(""), ring));
    ASSERT_TRUE(parsed.ok()) << lastError();
    EXPECT_EQ(parsed.value().find("chosen")->textAt("ring_gather", 99).value(), nameOf(directions));
  }
}

TEST(ExplainJson, NamesTheTableAndTheMeasurement) {
  const Table table = tableOf(entryText(rowText(2048, "tree", "simple")));
  const std::string text =
      explainJson(exampleRequest(Collective::kAllReduce, 2048, 4), exampleMachine(), table, {});
  EXPECT_NE(text.find("\"why\":\"table\""), std::string::npos) << text;
  EXPECT_NE(text.find("measured fastest at this size"), std::string::npos) << text;
}

}  // namespace
}  // namespace stretto::planner
