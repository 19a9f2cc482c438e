#include "topology/facts.hpp"

#include <gtest/gtest.h>

namespace stretto::topology {
namespace {

Facts example() {
  Facts facts;
  facts.hostname = "a \"host\"";
  facts.processor = "P";
  facts.usable = {0, 1, 4};
  facts.nodes = {{0, {0, 1, 2, 3}, 1000}, {1, {4, 5, 6, 7}, 2000}, {2, {}, 3000}};
  facts.caches = {{1, 32768, {0, 4}}, {3, 1 << 20, {0, 1, 2, 3}}, {3, 2 << 20, {4, 5, 6, 7}}};
  facts.memoryBytes = 6000;
  return facts;
}

std::string withReplaced(const std::string& from, const std::string& to) {
  const std::string text = toJson(example());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.substr(0, at) + to + text.substr(at + from.size());
}

TEST(Cores, ListsReadAndWrite) {
  for (const char* text : {"", "0", "0-1", "0-3,8", "1,3,5", "0,2-4,7-8191"}) {
    const auto cores = parseCores(text);
    ASSERT_TRUE(cores.ok()) << text;
    EXPECT_EQ(toText(cores.value()), text);
  }
  EXPECT_EQ(parseCores("0-2,3").value(), (Cores{0, 1, 2, 3}));
}

TEST(Cores, RefusesWhatIsNoList) {
  for (const char* text : {",", "0,", "-1", "1-", "3-1", "1,1", "2,1", "0-3,2", "8192", "0-8192",
                           "0-99999999999", "a", "0 1", "0-3 ", "0--1", "1-2-3", "+1"}) {
    EXPECT_EQ(parseCores(text).status().code, Code::kInvalidUsage) << text;
  }
}

TEST(Facts, SurviveJson) {
  const auto read = fromJson(toJson(example()));
  ASSERT_TRUE(read.ok()) << lastError();
  EXPECT_EQ(read.value(), example());
}

TEST(Facts, RefuseWhatIsNotOfTheSchema) {
  EXPECT_FALSE(fromJson("").ok());
  EXPECT_FALSE(fromJson("[]").ok());
  EXPECT_FALSE(fromJson("{}").ok());
  const std::pair<const char*, const char*> kWrong[] = {
      {"stretto.topology/1", "stretto.topology/2"},
      {"\"usable_cores\": \"0-1,4\"", "\"usable_cores\": \"\""},
      {"\"usable_cores\": \"0-1,4\"", "\"usable_cores\": \"1-0\""},
      {"\"memory_bytes\": 6000", "\"memory_bytes\": -1"},
      {"\"memory_bytes\": 1000", "\"memory_bytes\": 1e99"},
      {"\"id\": 1", "\"id\": 0"},
      {"\"cores\": \"4-7\"", "\"cores\": \"3-7\""},
      {"\"level\": 1", "\"level\": 0"},
      {"\"cores\": \"0,4\"", "\"cores\": \"\""},
      {"\"nodes\": [", "\"nodes\": [7,"},
      {"\"devices\": []", "\"devices\": {}"},
      {"\"devices\": []", "\"devices\": [{\"name\": \"without the rest\"}]"},
      {"\"processor\"", "\"processors\""},
  };
  for (const auto& [from, to] : kWrong) {
    EXPECT_EQ(fromJson(withReplaced(from, to)).status().code, Code::kInvalidUsage) << to;
  }
}

TEST(Facts, LastLevelCacheIsOneOfOurs) {
  Facts facts = example();
  EXPECT_EQ(lastLevelCacheBytes(facts), uint64_t{2} << 20);
  facts.usable = {1};
  EXPECT_EQ(lastLevelCacheBytes(facts), uint64_t{1} << 20);
  facts.usable = {100};
  EXPECT_EQ(lastLevelCacheBytes(facts), 0u);
}

TEST(Facts, NodeOfACore) {
  EXPECT_EQ(nodeOf(example(), 3), 0);
  EXPECT_EQ(nodeOf(example(), 4), 1);
  EXPECT_EQ(nodeOf(example(), 8), -1);
}

}  // namespace
}  // namespace stretto::topology
