#include "base/json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stretto::json {
namespace {

std::string refusal(std::string_view text) {
  setLastError("");
  const auto parsed = parse(text);
  EXPECT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code, Code::kInvalidUsage);
  return lastError();
}

std::string quoted(const std::string& text) {
  std::string out(1, '"');
  out.append(text);
  out.push_back('"');
  return out;
}

TEST(Json, ReadsEveryKind) {
  const auto parsed = parse(R"({"a": null, "b": true, "c": false, "d": -1.5e2, "e": "x", "f": [1, [], {}]})");
  ASSERT_TRUE(parsed.ok()) << lastError();
  const Value& root = parsed.value();
  EXPECT_EQ(root.kind(), Kind::kObject);
  EXPECT_EQ(root.find("a")->kind(), Kind::kNull);
  EXPECT_TRUE(root.find("b")->boolean());
  EXPECT_FALSE(root.find("c")->boolean());
  EXPECT_EQ(root.find("d")->number(), -150);
  EXPECT_EQ(root.find("e")->text(), "x");
  ASSERT_EQ(root.find("f")->items().size(), 3u);
  EXPECT_EQ(root.find("f")->items()[2].kind(), Kind::kObject);
  EXPECT_EQ(root.find("g"), nullptr);
}

TEST(Json, ReadsScalarsAlone) {
  EXPECT_TRUE(parse("null").ok());
  EXPECT_TRUE(parse(" \t\r\n0 \n").ok());
  EXPECT_TRUE(parse("-0.0e-0").ok());
  EXPECT_TRUE(parse("\"\"").ok());
}

TEST(Json, DecodesEscapes) {
  const auto parsed = parse(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00")");
  ASSERT_TRUE(parsed.ok()) << lastError();
  EXPECT_EQ(parsed.value().text(), "\"\\/\b\f\n\r\tA\u00e9\u20ac\U0001f600");
}

TEST(Json, PassesUtf8Through) {
  const std::string text = "\u00e9\u20ac\U0001f600";
  const auto parsed = parse(quoted(text));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().text(), text);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",       " ",         "nul",         "truex",       "tru",         "+1",
        "01",     "1.",        ".5",          "1e",          "1e+",         "-",
        "1 2",    "[1,]",      "[,1]",        "[1 2]",       "[",           "[1",
        "{",      "{\"a\"",    "{\"a\":",     "{\"a\":1",    "{\"a\":1,",   "{\"a\":1,}",
        "{a:1}",  "{1:1}",     "\"",          "\"a",         "'a'",         "\"\\x\"",
        "\"\\",   "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
        "\"\t\"", "\"\n\"",    "// c\n1",     "NaN",         "Infinity",    "\xef\xbb\xbf{}",
        "{} {}"}) {
    EXPECT_FALSE(parse(text).ok()) << text;
  }
}

TEST(Json, RefusesBytesThatAreNotUtf8) {
  for (const char* text :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82"}) {
    EXPECT_NE(refusal(quoted(text)).find("UTF-8"), std::string::npos);
  }
}

TEST(Json, SaysLineAndColumn) {
  EXPECT_EQ(refusal("{\n  \"a\": 1,\n  \"b\": ?\n}"), "JSON, line 3 column 8: this is no JSON value");
  EXPECT_NE(refusal("[1").find("line 1 column 3"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1, \"a\": 2}").find("appears twice"), std::string::npos);
}

TEST(Json, NumbersKeepTheirMeaning) {
  const auto parsed =
      parse(R"({"least": -9223372036854775808, "most": 9223372036854775807, "over": 9223372036854775808,
                               "point": 1.0, "tenth": 0.1})");
  ASSERT_TRUE(parsed.ok()) << lastError();
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(parsed.value().integerAt("least", kLow, kHigh).value(), kLow);
  EXPECT_EQ(parsed.value().integerAt("most", kLow, kHigh).value(), kHigh);
  EXPECT_FALSE(parsed.value().integerAt("over", kLow, kHigh).ok());
  EXPECT_FALSE(parsed.value().integerAt("point", kLow, kHigh).ok());
  EXPECT_EQ(parsed.value().numberAt("tenth", 0, 1).value(), 0.1);
  EXPECT_NE(refusal("1e999").find("too large"), std::string::npos);
}

TEST(Json, BoundsDepthSizeStringsAndValues) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse(nested(kMostDepth)).ok());
  EXPECT_NE(refusal(nested(kMostDepth + 1)).find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(kMostBytes + 1, ' ')).find("16 MB"), std::string::npos);
  EXPECT_TRUE(parse(quoted(std::string(kMostString, 'x'))).ok());
  EXPECT_NE(refusal(quoted(std::string(kMostString + 1, 'x'))).find("1 MB"), std::string::npos);
  std::string many = "[0";
  for (size_t i = 0; i < kMostValues; ++i) many += ",0";
  EXPECT_NE(refusal(many + "]").find("more values"), std::string::npos);
}

TEST(Json, GettersSayWhatIsWrong) {
  const auto parsed = parse("{\"n\": 5,\n\"s\": \"abc\",\n\"l\": [1, \"x\"], \"z\": \"a\\u0000b\"}");
  ASSERT_TRUE(parsed.ok());
  const Value& root = parsed.value();
  EXPECT_EQ(root.integerAt("n", 5, 5).value(), 5);
  EXPECT_FALSE(root.integerAt("n", 6, 9).ok());
  EXPECT_EQ(lastError(), "line 1: \"n\" must be a whole number from 6 to 9");
  EXPECT_FALSE(root.integerAt("m", 6, 9).ok());
  EXPECT_EQ(lastError(), "line 1: \"m\" is missing here");
  EXPECT_FALSE(root.textAt("s", 2).ok());
  EXPECT_NE(lastError().find("line 2: \"s\""), std::string::npos);
  EXPECT_EQ(root.textAt("s", 3).value(), "abc");
  EXPECT_FALSE(root.textAt("z", 9).ok()) << "a zero byte would cut the text short wherever it is printed";
  EXPECT_FALSE(root.booleanAt("s").ok());
  EXPECT_EQ(lastError(), "line 2: \"s\" must be true or false");
  EXPECT_FALSE(root.itemsAt("l", Kind::kNumber, 9).ok());
  EXPECT_NE(lastError().find("line 3"), std::string::npos);
  EXPECT_FALSE(root.itemsAt("l", Kind::kNumber, 1).ok());
  EXPECT_FALSE(root.numberAt("n", 6, 7).ok());
}

TEST(JsonWriter, WritesWhatTheReaderReads) {
  Writer out;
  out.beginObject().key("a\"\\\n\x01").text("\u00e9\x7f").key("l").beginArray();
  out.integer(-7).number(0.1).number(1e300).boolean(true).null().number(std::nan("")).endArray();
  out.key("o").beginObject().endObject().key("e").beginArray().endArray().endObject();
  const std::string text = out.take();
  EXPECT_EQ(text,
            "{\"a\\\"\\\\\\u000a\\u0001\":\"\u00e9\\u007f\",\"l\":[-7,0.1,1e+300,true,null,null],\"o\":{},"
            "\"e\":[]}");
  const auto parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << lastError();
  EXPECT_EQ(parsed.value().keys()[0], "a\"\\\n\x01");
  EXPECT_EQ(parsed.value().find("l")->items()[1].number(), 0.1);
}

TEST(JsonWriter, IndentsForPeople) {
  Writer out(true);
  out.beginObject().key("a").beginArray().integer(1).integer(2).endArray().key("b").beginArray().endArray();
  EXPECT_EQ(out.endObject().take(), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": []\n}");
}

TEST(JsonWriter, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(Writer().text("a\xff\xc3").take(), "\"a\\ufffd\\ufffd\"");
}

TEST(JsonFile, ReadsBoundedAndNamesTheFile) {
  EXPECT_FALSE(readFile("/nonexistent/table.json").ok());
  EXPECT_NE(lastError().find("/nonexistent/table.json"), std::string::npos);
  EXPECT_FALSE(readFile("/").ok()) << "a folder is no file";
}

}  // namespace
}  // namespace stretto::json
