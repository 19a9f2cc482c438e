#include "planner/table.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "base/scoped_variable.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

std::string refusalOfTable(const std::string& text) {
  setLastError("");
  const auto table = Table::parse(text);
  EXPECT_FALSE(table.ok()) << text;
  EXPECT_EQ(table.status().code, Code::kInvalidUsage) << text;
  return lastError();
}

std::string refusalOfRow(const std::string& row) {
  return refusalOfTable(tableText(entryText(row)));
}

const std::string kThreeRows = rowText(1024, "one_shot", "ll") + "," + rowText(16384, "one_shot", "simple") +
                               "," + rowText(262144, "two_shot", "simple");

TEST(Table, TheShippedOneParses) {
  const auto table = Table::shipped();
  ASSERT_TRUE(table.ok()) << lastError();
  EXPECT_EQ(table.value().origin(), "shipped");
  EXPECT_NE(table.value().hash(), 0u);
}

TEST(Table, RefusesTextsCutShort) {
  const std::string whole = tableText(entryText(kThreeRows));
  ASSERT_TRUE(Table::parse(whole).ok()) << lastError();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(Table::parse(whole.substr(0, length)).ok()) << length;
  }
}

TEST(Table, RefusesOtherSchemas) {
  EXPECT_NE(refusalOfTable("{}").find("\"schema\" is missing"), std::string::npos);
  EXPECT_NE(refusalOfTable("{\"schema\": \"stretto.table/2\", \"machine\": {}, \"entries\": []}")
                .find("stretto.table/2"),
            std::string::npos);
  EXPECT_NE(refusalOfTable("{\"schema\": \"stretto.table/1\", \"entries\": []}").find("machine"),
            std::string::npos);
  EXPECT_NE(refusalOfTable("{\"schema\": \"stretto.table/1\", \"machine\": {}}").find("entries"),
            std::string::npos);
  refusalOfTable("[]");
  refusalOfTable("7");
}

TEST(Table, RefusesNumbersOutOfBounds) {
  for (const char* rest : {"\"chunk_bytes\": -64, \"us\": 1", "\"chunk_bytes\": 65, \"us\": 1",
                           "\"chunk_bytes\": 1e3, \"us\": 1", "\"chunk_bytes\": 99999999999, \"us\": 1",
                           "\"chunk_bytes\": 0, \"us\": 0", "\"chunk_bytes\": 0, \"us\": -1",
                           "\"chunk_bytes\": 0, \"us\": 1e10", "\"chunk_bytes\": 0, \"us\": 1e999",
                           "\"chunk_bytes\": 0, \"us\": \"1\"", "\"chunk_bytes\": 0", "\"us\": 1"}) {
    refusalOfRow(rowText(64, "one_shot", "ll", rest));
  }
  refusalOfRow(rowText(0, "one_shot", "ll"));
  refusalOfRow(rowText(1ull << 41, "one_shot", "simple"));
  for (const char* rest : {"\"ranks\": 1, \"cores\": 8, \"same_process\": false, \"reach\": false",
                           "\"ranks\": 65, \"cores\": 8, \"same_process\": false, \"reach\": false",
                           "\"ranks\": -4, \"cores\": 8, \"same_process\": false, \"reach\": false",
                           "\"ranks\": 4, \"cores\": 0, \"same_process\": false, \"reach\": false",
                           "\"ranks\": 4, \"cores\": 8, \"same_process\": 0, \"reach\": false",
                           "\"ranks\": 4, \"cores\": 8, \"same_process\": false"}) {
    refusalOfTable(tableText(entryText(kThreeRows, "all_reduce", rest)));
  }
}

TEST(Table, RefusesNamesItDoesNotKnow) {
  EXPECT_NE(refusalOfTable(tableText(entryText("", "all_deduce"))).find("all_deduce"), std::string::npos);
  EXPECT_NE(refusalOfTable(tableText(entryText("", "receive"))).find("receive goes by send"),
            std::string::npos);
  const std::string unknown = refusalOfRow(rowText(64, "three_shot", "ll"));
  EXPECT_EQ(unknown, "line 1: all_reduce has no algorithm \"three_shot\" with protocol \"ll\"");
  refusalOfRow(rowText(64, "one_shot", "waves"));
  refusalOfRow(rowText(64, "ring", "ll"));
  refusalOfRow(rowText(64, "chain", "simple"));
  refusalOfRow(rowText(64, "local", "simple"));
}

TEST(Table, RefusesDuplicates) {
  const std::string twice = rowText(64, "one_shot", "ll") + "," + rowText(64, "one_shot", "simple");
  EXPECT_NE(refusalOfRow(twice).find("two rows of this entry have 64 bytes"), std::string::npos);
  const std::string entry = entryText(kThreeRows);
  EXPECT_NE(refusalOfTable(tableText(entry + "," + entry)).find("same case"), std::string::npos);
  // 8 and 4 cores both give each of the 4 ranks its own.
  const std::string four = entryText(kThreeRows, "all_reduce",
                                     "\"ranks\": 4, \"cores\": 4, \"same_process\": false, \"reach\": false");
  refusalOfTable(tableText(entry + "," + four));
  const std::string two = entryText(kThreeRows, "all_reduce",
                                    "\"ranks\": 4, \"cores\": 2, \"same_process\": false, \"reach\": false");
  EXPECT_TRUE(Table::parse(tableText(entry + "," + two)).ok()) << lastError();
}

TEST(Table, HashIsOfWhatDecides) {
  const std::string other = entryText(rowText(8, "push", "ll"), "all_gather");
  const Table table = tableOf(entryText(kThreeRows) + "," + other);
  ASSERT_EQ(table.size(), 2u);
  const uint64_t hash = table.hash();
  EXPECT_EQ(tableOf(other + "," + entryText(kThreeRows)).hash(), hash) << "order of entries";
  const std::string reordered = rowText(262144, "two_shot", "simple", "\"us\": 1.50, \"chunk_bytes\": 0") +
                                ",\n" + rowText(1024, "one_shot", "ll") + " ,\t" +
                                rowText(16384, "one_shot", "simple");
  EXPECT_EQ(tableOf(entryText(reordered) + "," + other).hash(), hash)
      << "order of rows, keys and white space";
  const auto elsewhere = Table::parse("{\"entries\": [" + entryText(kThreeRows) + "," + other +
                                      "], \"machine\": {\"name\": \"x\"}, \"schema\": \"stretto.table/1\"}");
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_EQ(elsewhere.value().hash(), hash) << "the machine is for people";
}

TEST(Table, HashSeesEveryDifference) {
  const std::string base = rowText(1024, "one_shot", "simple");
  std::vector<uint64_t> hashes = {tableOf("").hash(), tableOf(entryText("")).hash(),
                                  tableOf(entryText(base)).hash()};
  for (const std::string& row : {rowText(1025, "one_shot", "simple"), rowText(1024, "two_shot", "simple"),
                                 rowText(1024, "one_shot", "ll"),
                                 rowText(1024, "one_shot", "simple", "\"chunk_bytes\": 64, \"us\": 1.5"),
                                 rowText(1024, "one_shot", "simple", "\"chunk_bytes\": 0, \"us\": 1.25")}) {
    hashes.push_back(tableOf(entryText(row)).hash());
  }
  for (const char* rest : {"\"ranks\": 5, \"cores\": 8, \"same_process\": false, \"reach\": false",
                           "\"ranks\": 4, \"cores\": 3, \"same_process\": false, \"reach\": false",
                           "\"ranks\": 4, \"cores\": 8, \"same_process\": true, \"reach\": false",
                           "\"ranks\": 4, \"cores\": 8, \"same_process\": false, \"reach\": true"}) {
    hashes.push_back(tableOf(entryText(base, "all_reduce", rest)).hash());
  }
  hashes.push_back(tableOf(entryText(rowText(1024, "ring", "simple"), "all_gather")).hash());
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

class TableFind : public ::testing::Test {
 protected:
  // Bytes of the nearest row, 0 if there is none.
  uint64_t nearest(size_t bytes) const {
    const auto match = table_.find(exampleRequest(Collective::kAllReduce, bytes, 4), exampleMachine());
    return match.nearest == nullptr ? 0 : match.nearest->bytes;
  }
  Table table_ = tableOf(entryText(kThreeRows));
};

TEST_F(TableFind, NearestInLogScale) {
  EXPECT_EQ(nearest(1024), 1024u);
  EXPECT_EQ(nearest(4095), 1024u);
  EXPECT_EQ(nearest(4096), 16384u);
  EXPECT_EQ(nearest(16384), 16384u);
  EXPECT_EQ(nearest(65535), 16384u);
  EXPECT_EQ(nearest(65536), 262144u);
}

TEST_F(TableFind, EndsReachAFactorOfFour) {
  EXPECT_EQ(nearest(0), 0u);
  EXPECT_EQ(nearest(255), 0u);
  EXPECT_EQ(nearest(256), 1024u);
  EXPECT_EQ(nearest(1048576), 262144u);
  EXPECT_EQ(nearest(1048577), 0u);
}

TEST_F(TableFind, EntryMustBeForThisCase) {
  const Request request = exampleRequest(Collective::kAllReduce, 1024, 4);
  Machine machine = exampleMachine();
  for (const int cores : {4, 8, 1000}) {
    machine.cores = cores;
    EXPECT_NE(table_.find(request, machine).nearest, nullptr) << cores;
  }
  machine.cores = 3;
  EXPECT_EQ(table_.find(request, machine).nearest, nullptr);
  machine = exampleMachine();
  machine.reach = true;
  EXPECT_EQ(table_.find(request, machine).nearest, nullptr);
  machine = exampleMachine();
  machine.sameProcess = true;
  EXPECT_EQ(table_.find(request, machine).nearest, nullptr);
  EXPECT_EQ(table_.find(exampleRequest(Collective::kAllReduce, 1024, 3), exampleMachine()).nearest, nullptr);
  EXPECT_EQ(table_.find(exampleRequest(Collective::kReduce, 1024, 4), exampleMachine()).nearest, nullptr);
}

TEST_F(TableFind, FewerCoresThanRanksMustBeEqual) {
  const Table table = tableOf(entryText(
      kThreeRows, "all_reduce", "\"ranks\": 4, \"cores\": 2, \"same_process\": false, \"reach\": false"));
  const Request request = exampleRequest(Collective::kAllReduce, 1024, 4);
  EXPECT_NE(table.find(request, exampleMachine(2)).nearest, nullptr);
  EXPECT_EQ(table.find(request, exampleMachine(3)).nearest, nullptr);
  EXPECT_EQ(table.find(request, exampleMachine(4)).nearest, nullptr);
}

TEST_F(TableFind, ReceivesAreSends) {
  const Table table = tableOf(entryText(rowText(1024, "flat", "simple"), "send"));
  const auto match = table.find(exampleRequest(Collective::kReceive, 1024, 4), exampleMachine());
  EXPECT_NE(match.nearest, nullptr);
}

TEST_F(TableFind, TimeLiesBetweenTheNeighbours) {
  const Table table =
      tableOf(entryText(rowText(1000, "one_shot", "ll", "\"chunk_bytes\": 0, \"us\": 2") + "," +
                        rowText(2000, "one_shot", "ll", "\"chunk_bytes\": 0, \"us\": 4")));
  const auto time = [&](size_t bytes) {
    return table.find(exampleRequest(Collective::kAllReduce, bytes, 4), exampleMachine()).microseconds;
  };
  EXPECT_FLOAT_EQ(time(500), 2);
  EXPECT_FLOAT_EQ(time(1000), 2);
  EXPECT_FLOAT_EQ(time(1500), 3);
  EXPECT_FLOAT_EQ(time(2000), 4);
  EXPECT_FLOAT_EQ(time(4000), 8);
}

class TableLoad : public ::testing::Test {
 protected:
  void write(const std::string& text) {
    FILE* file = fopen(path_.c_str(), "w");
    ASSERT_NE(file, nullptr);
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
  }
  ~TableLoad() override { unlink(path_.c_str()); }

  std::string path_ = ::testing::TempDir() + "stretto_table_" + std::to_string(getpid()) + ".json";
  ScopedVariable variable_{"STRETTO_TABLE", nullptr};
};

TEST_F(TableLoad, IsTheShippedOneUnlessAFileIsGiven) {
  const auto table = Table::load();
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table.value().hash(), Table::shipped().value().hash());
}

TEST_F(TableLoad, ReadsTheFile) {
  write(tableText(entryText(kThreeRows)));
  variable_.set(path_.c_str());
  const auto table = Table::load();
  ASSERT_TRUE(table.ok()) << lastError();
  EXPECT_EQ(table.value().hash(), tableOf(entryText(kThreeRows)).hash());
  EXPECT_EQ(table.value().origin(), path_);
}

TEST_F(TableLoad, AFileThatCannotBeUsedIsAnError) {
  variable_.set("/nonexistent/table.json");
  EXPECT_EQ(Table::load().status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("STRETTO_TABLE=/nonexistent/table.json"), std::string::npos);
  write("{\n\n  \"schema\": 7}");
  variable_.set(path_.c_str());
  EXPECT_FALSE(Table::load().ok());
  EXPECT_NE(lastError().find("line 3: \"schema\" must be a string"), std::string::npos) << lastError();
}

}  // namespace
}  // namespace stretto::planner
