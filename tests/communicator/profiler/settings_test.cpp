// The three settings of NCCL programs, as the examples in examples/profiler: which calls a profiler plugin
// gets from each, exactly, and in which order on each thread.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "harness/watchdog.hpp"
#include "profiler/journal.hpp"

namespace stretto {
namespace {

using testing::Journal;
using testing::JournalCall;
using Script = std::vector<std::string>;

Journal runExample(const std::string& name) {
  const std::string log = ::testing::TempDir() + "profile_" + name + "_" + std::to_string(getpid());
  const std::string folder = STRETTO_TEST_PROFILERS;
  const std::string command = "NCCL_PROFILER_PLUGIN=" + folder + "/libnccl-profiler-recording-v7.so " +
                              "STRETTO_DEVICE=cpu STRETTO_TEST_PROFILE_LOG=" + log + " timeout 50 " +
                              std::string(STRETTO_TEST_EXAMPLES) + "/example_" + name + " > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  Journal journal = Journal::read(log);
  unlink(log.c_str());
  EXPECT_EQ(journal.complaints(), Script());
  EXPECT_TRUE(journal.neverStopped().empty());
  return journal;
}

// R stands for the rank in expected scripts.
Script forRank(const Script& script, int rank) {
  Script lines;
  for (const std::string& line : script) {
    std::string& own = lines.emplace_back();
    for (size_t at = 0; at < line.size(); ++at) {
      const bool alone = line[at] == 'R' && at > 0 && (line[at - 1] == '/' || line[at - 1] == '=') &&
                         (at + 1 == line.size() || line[at + 1] == '.' || line[at + 1] == ' ');
      own += alone ? std::to_string(rank) : std::string(1, line[at]);
    }
  }
  return lines;
}

const Script kInit = {"init name=(null) nodes=1 ranks=2 rank=R"};

Script collApi(int number, const std::string& what, const std::string& group = "GroupApi/R.0") {
  const std::string name = "CollApi/R." + std::to_string(number);
  return {"start " + name + " in " + group + " captured=0 " + what, "stop " + name};
}

Script launch(const std::string& group = "GroupApi/R.0") {
  return {"start KernelLaunch/R.0 in " + group, "stop KernelLaunch/R.0"};
}

Script coll(int number, const std::string& what) {
  const std::string n = std::to_string(number);
  return {"start Coll/R." + n + " in CollApi/R." + n + " group=Group/R.0 seq=0 " + what + " channels=1",
          "start KernelCh/R." + n + " in Coll/R." + n, "state KernelCh/R." + n + " state=22",
          "stop KernelCh/R." + n, "stop Coll/R." + n};
}

Script together(const std::vector<Script>& parts) {
  Script all;
  for (const Script& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// GPU times are those of the span: later stops than starts, and all within this run.
void expectTimes(const Journal& journal, size_t spans) {
  std::map<std::string, uint64_t> started;
  for (const JournalCall& call : journal.of("start", "KernelCh")) started[call.event] = call.number("timer");
  EXPECT_EQ(started.size(), spans);
  for (const JournalCall& call : journal.of("state", "KernelCh")) {
    EXPECT_GT(started[call.event], uint64_t{1600000000} * 1000000000) << "not nanoseconds since 1970";
    EXPECT_GE(call.number("timer"), started[call.event]);
    EXPECT_LT(call.number("timer") - started[call.event], uint64_t{60} * 1000000000);
  }
}

const std::string kSum = "func=AllReduce count=1024 type=ncclFloat32 root=0";

TEST(ProfilerSettings, OneDevicePerThread) {
  const testing::Watchdog watchdog("an example", 60);
  const Journal journal = runExample("one_device_per_thread");
  for (int rank = 0; rank < 2; ++rank) {
    const std::string thread = journal.threadOf("GroupApi/" + std::to_string(rank) + ".0");
    const Script wanted =
        together({kInit,
                  {"start GroupApi/R.0 captured=0 depth=1", "state GroupApi/R.0 state=23 args=0"},
                  collApi(0, kSum),
                  {"state GroupApi/R.0 state=24 args=0"},
                  launch(),
                  {"start Group/R.0"},
                  coll(0, kSum),
                  {"stop Group/R.0", "stop GroupApi/R.0", "finalize"}});
    EXPECT_EQ(journal.script(thread), forRank(wanted, rank));
  }
  EXPECT_TRUE(journal.of("start", "ProxyCtrl").empty()) << "the calling threads need no worker";
  expectTimes(journal, 2);
}

// Waits of the worker, each whole; and one piece of work that it took.
void expectWorker(const Journal& journal) {
  std::map<std::string, std::string> states;
  int appended = 0;
  for (const JournalCall& call : journal.of("state", "ProxyCtrl")) {
    states[call.event] += call.word("state") + ";";
    appended += static_cast<int>(call.number("appended"));
  }
  EXPECT_EQ(appended, 1);
  for (const auto& [event, seen] : states) {
    EXPECT_TRUE(seen == "15;16;" || seen == "17;18;") << event << ": " << seen;
  }
}

TEST(ProfilerSettings, SeveralDevicesPerThread) {
  const testing::Watchdog watchdog("an example", 60);
  const Journal journal = runExample("several_devices_per_thread");
  const std::string main = journal.threadOf("GroupApi/0.0");
  const std::string worker = journal.threadOf("Coll/1.0");
  EXPECT_NE(main, worker);
  EXPECT_EQ(journal.of("start", "GroupApi").size(), 1u);
  EXPECT_EQ(journal.of("init", "").size(), 2u);
  EXPECT_EQ(journal.of("finalize", "").size(), 2u);

  const std::string group = "GroupApi/0.0";
  Script wanted = together({forRank(kInit, 0),
                            {"start GroupApi/0.0 captured=0 depth=2", "state GroupApi/0.0 state=23 args=0"},
                            forRank(collApi(0, kSum, group), 0),
                            forRank(collApi(0, kSum, group), 1),
                            {"state GroupApi/0.0 state=24 args=0"},
                            forRank(launch(group), 1),
                            forRank(launch(group), 0),
                            {"start Group/0.0"},
                            forRank(coll(0, kSum), 0),
                            {"stop Group/0.0", "stop GroupApi/0.0", "finalize", "finalize"}});
  EXPECT_EQ(journal.script(main), wanted);
  EXPECT_EQ(journal.script(worker),
            forRank(together({{"start Group/R.0"}, coll(0, kSum), {"stop Group/R.0"}}), 1));
  expectWorker(journal);
  expectTimes(journal, 2);
}

TEST(ProfilerSettings, AggregatedOperations) {
  const testing::Watchdog watchdog("an example", 60);
  const Journal journal = runExample("aggregated");
  // What the calls say, and what the operations say: two of them in bytes.
  const Script calls = {kSum, "func=Broadcast count=1024 type=ncclFloat32 root=1",
                        "func=Reduce count=1024 type=ncclFloat32 root=0",
                        "func=AllGather count=1024 type=ncclFloat32 root=0",
                        "func=ReduceScatter count=1024 type=ncclFloat32 root=0"};
  Script operations = calls;
  operations[1] = "func=Broadcast count=4096 type=ncclInt8 root=1";
  operations[3] = "func=AllGather count=4096 type=ncclInt8 root=0";
  for (int rank = 0; rank < 2; ++rank) {
    Script called, run;
    for (int i = 0; i < 5; ++i) {
      called = together({called, collApi(i, calls[static_cast<size_t>(i)])});
      run = together({run, coll(i, operations[static_cast<size_t>(i)])});
    }
    const std::string thread = journal.threadOf("GroupApi/" + std::to_string(rank) + ".0");
    const Script wanted =
        together({kInit,
                  {"start GroupApi/R.0 captured=0 depth=2", "state GroupApi/R.0 state=23 args=0"},
                  called,
                  {"state GroupApi/R.0 state=24 args=0"},
                  launch(),
                  {"start Group/R.0"},
                  run,
                  {"stop Group/R.0", "stop GroupApi/R.0", "finalize"}});
    EXPECT_EQ(journal.script(thread), forRank(wanted, rank));
  }
  expectTimes(journal, 10);
}

}  // namespace
}  // namespace stretto
