// What the doctor says about sets of recorders, sentence by sentence.
#include "observe/doctor.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>

#include "base/json.hpp"
#include "harness/watchdog.hpp"
#include "observe/made_up_flights.hpp"
#include "platform/clock.hpp"

namespace stretto::observe {
namespace {

// Ranks 0 to n-1 of which each has finished #1840 two minutes ago.
FlightReading finishedJob(int ranks) {
  FlightReading reading;
  for (int rank = 0; rank < ranks; ++rank) {
    reading.snapshots.push_back(rankOf(rank, ranks));
    add(reading.snapshots.back(), operation(1840, ago(120.5), ago(120)));
  }
  return reading;
}

const CommunicatorDiagnosis& only(const Diagnosis& diagnosis) {
  EXPECT_EQ(diagnosis.communicators.size(), 1u);
  return diagnosis.communicators.front();
}

void expectSays(const Diagnosis& diagnosis, const std::string& sentence) {
  const auto& sentences = only(diagnosis).sentences;
  EXPECT_NE(std::find(sentences.begin(), sentences.end(), sentence), sentences.end())
      << "expected: " << sentence << "\ngot:\n"
      << diagnosis.text;
}

using Ranks = std::vector<int>;

TEST(Doctor, NamesTheRankThatHasNotEntered) {
  FlightReading reading = finishedJob(4);
  for (const int rank : {0, 1, 3}) add(reading.snapshots[rank], operation(1841, ago(12.3 - 0.1 * rank)));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
  EXPECT_EQ(only(got).suspects, Ranks{2});
  expectSays(got,
             "rank 2 (host h, pid 102) has not entered #1841 all_reduce bfloat16 x 4096; ranks 0, 1, 3 wait "
             "since 12.3 s");
  expectSays(
      got,
      "rank 2 (host h, pid 102) is in no operation; its last, #1840 all_reduce bfloat16 x 4096, finished "
      "2 min 0 s ago");
}

FlightOperation enqueued(FlightOperation what) {
  what.enqueued = true;
  return what;
}

// On GPUs the ends of operations are noticed late, so many seem to run.
TEST(Doctor, NamesTheGpuRankThatHasNotEntered) {
  FlightReading reading = finishedJob(3);
  for (const int rank : {0, 1, 2}) add(reading.snapshots[rank], enqueued(operation(1841, ago(20))));
  for (const int rank : {0, 1, 2}) {
    add(reading.snapshots[rank], enqueued(transfer(Collective::kSend, (rank + 1) % 3, ago(19))));
  }
  for (const int rank : {0, 1, 2}) add(reading.snapshots[rank], enqueued(operation(1842, ago(15))));
  for (const int rank : {0, 2}) add(reading.snapshots[rank], enqueued(operation(1843, ago(12))));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
  EXPECT_EQ(only(got).suspects, Ranks{1});
  expectSays(
      got,
      "rank 1 (host h, pid 101) has not entered #1843 all_reduce bfloat16 x 4096; ranks 0, 2 wait since "
      "12.0 s");
}

TEST(Doctor, SpeaksOfTheLastThatAllGpuRanksEntered) {
  FlightReading reading = finishedJob(2);
  for (const int rank : {0, 1}) add(reading.snapshots[rank], enqueued(operation(1841, ago(20))));
  for (const int rank : {0, 1}) add(reading.snapshots[rank], enqueued(operation(1842, ago(15))));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
  EXPECT_NE(got.text.find("all ranks are in #1842"), std::string::npos) << got.text;
  EXPECT_EQ(got.text.find("all ranks are in #1841"), std::string::npos) << got.text;
}

TEST(Doctor, SaysWhenTheMissingRankIsStopped) {
  FlightReading reading = finishedJob(2);
  add(reading.snapshots[0], operation(1841, ago(5)));
  reading.snapshots[1].liveness = Liveness::kStopped;
  expectSays(diagnose(reading),
             "rank 1 (host h, pid 101, its process is stopped) has not entered #1841 all_reduce bfloat16 x "
             "4096; rank 0 "
             "waits since 5.0 s");
}

TEST(Doctor, SaysWhatTheMissingRankIsInInstead) {
  FlightReading reading = finishedJob(3);
  for (const int rank : {0, 1}) add(reading.snapshots[rank], operation(1841, ago(5)));
  add(reading.snapshots[2], transfer(Collective::kReceive, 1, ago(7)));
  const Diagnosis got = diagnose(reading);
  expectSays(got, "rank 2 (host h, pid 102) is in receive float32 x 64 from rank 1 since 7.0 s");
  expectSays(
      got,
      "rank 2 (host h, pid 102) is in receive float32 x 64 from rank 1 since 7.0 s; rank 1 is in #1841 "
      "all_reduce bfloat16 x 4096 since 5.0 s");
}

TEST(Doctor, SaysWhoDied) {
  FlightReading reading = finishedJob(3);
  for (FlightSnapshot& snapshot : reading.snapshots) {
    FlightOperation broadcast = operation(1841, ago(3));
    broadcast.function = Collective::kBroadcast;
    broadcast.root = 2;
    add(snapshot, broadcast);
  }
  reading.snapshots[1].liveness = Liveness::kGone;
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kDied);
  EXPECT_EQ(only(got).suspects, Ranks{1});
  expectSays(got, "rank 1 died (pid 101 on host h is gone) in #1841 broadcast bfloat16 x 4096 with root 2");
}

TEST(Doctor, SaysWhoDiedBetweenOperationsAndWhoWaits) {
  FlightReading reading = finishedJob(3);
  for (const int rank : {0, 2}) add(reading.snapshots[rank], operation(1841, ago(3)));
  reading.snapshots[1].liveness = Liveness::kGone;
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(only(got).suspects, Ranks{1});
  expectSays(got, "rank 1 died (pid 101 on host h is gone) after #1840 all_reduce bfloat16 x 4096");
  expectSays(
      got, "ranks 0, 2 are in #1841 all_reduce bfloat16 x 4096 since 3.0 s; rank 0 entered last, 3.0 s ago");
}

TEST(Doctor, WhoIsGoneBetweenOperationsAndMissedByNobodyHasLeft) {
  FlightReading reading = finishedJob(3);
  reading.snapshots[1].liveness = Liveness::kGone;
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kLeft);
  EXPECT_STREQ(nameOf(got.verdict), "left");
  EXPECT_EQ(only(got).suspects, Ranks{});
  expectSays(
      got,
      "rank 1 left without finalising (pid 101 on host h is gone) after #1840 all_reduce bfloat16 x 4096");
  EXPECT_EQ(got.text.find("died"), std::string::npos) << got.text;
  // All of them, as by _exit(0) at the end of a program.
  for (FlightSnapshot& snapshot : reading.snapshots) snapshot.liveness = Liveness::kGone;
  EXPECT_EQ(diagnose(reading).verdict, Verdict::kLeft);
}

TEST(Doctor, WhoLeavesOthersBehindHasDied) {
  FlightReading ahead = finishedJob(3);
  add(ahead.snapshots[0], operation(1841, ago(3), ago(2)));
  ahead.snapshots[1].liveness = Liveness::kGone;
  EXPECT_EQ(diagnose(ahead).verdict, Verdict::kDied) << "rank 0 has been in an operation without it";
  FlightReading lost = finishedJob(3);
  lost.snapshots[2].error = "rank 1 went away";
  lost.snapshots[1].liveness = Liveness::kGone;
  EXPECT_EQ(diagnose(lost).verdict, Verdict::kDied);
  expectSays(diagnose(lost),
             "rank 1 died, or left without finalising, (pid 101 on host h is gone) after #1840 all_reduce "
             "bfloat16 x 4096");
}

TEST(Doctor, AWitnessIsNotTheDead) {
  FlightReading reading = finishedJob(2);
  FlightOperation failed = operation(1841, ago(3), ago(2));
  failed.state = OperationState::kFailed;
  failed.code = Code::kRemote;
  add(reading.snapshots[0], failed);
  reading.snapshots[0].error = "rank 1 went away";
  add(reading.snapshots[1], operation(1841, ago(3)));
  for (FlightSnapshot& snapshot : reading.snapshots) snapshot.liveness = Liveness::kGone;
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kDied);
  expectSays(
      got,
      "rank 0 ended after an error (pid 100 on host h is gone): #1841 all_reduce bfloat16 x 4096 failed: "
      "rank 1 went away");
  expectSays(got, "rank 1 died (pid 101 on host h is gone) in #1841 all_reduce bfloat16 x 4096");
}

TEST(Doctor, AfterTheJobWasKilledStillNamesTheRankBehind) {
  FlightReading reading = finishedJob(4);
  for (const int rank : {0, 1, 3}) add(reading.snapshots[rank], operation(1841, ago(60)));
  for (FlightSnapshot& snapshot : reading.snapshots) snapshot.liveness = Liveness::kGone;
  // The last thing that anybody did: 40 s after the others had entered.
  add(reading.snapshots[2], transfer(Collective::kSend, 0, ago(21), ago(20)));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(only(got).suspects, Ranks{2});
  expectSays(got,
             "rank 2 (host h, pid 102) has not entered #1841 all_reduce bfloat16 x 4096; ranks 0, 1, 3 wait "
             "since at least 40.0 s");
}

TEST(Doctor, SaysWhereRanksDisagree) {
  FlightReading reading = finishedJob(3);
  for (FlightSnapshot& snapshot : reading.snapshots) {
    FlightOperation call = operation(1841, ago(3));
    if (snapshot.rank == 1) call.type = DataType::kFloat32;
    add(snapshot, call);
  }
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kDisagree);
  EXPECT_EQ(only(got).suspects, Ranks{1});
  expectSays(
      got,
      "ranks disagree at #1841: ranks 0, 2 called #1841 all_reduce bfloat16 x 4096; rank 1 called #1841 "
      "all_reduce float32 x 4096");
}

TEST(Doctor, TheFirstDifferenceCountsAndTheOperatorIsPartOfIt) {
  FlightReading reading = finishedJob(2);
  for (const uint64_t sequence : {1841, 1842, 1843}) {
    for (FlightSnapshot& snapshot : reading.snapshots) {
      FlightOperation call = operation(sequence, ago(3), ago(2));
      if (snapshot.rank == 1 && sequence >= 1842) call.op = Operator::kMax;
      if (snapshot.rank == 1 && sequence == 1843) call.function = Collective::kAllGather;
      add(snapshot, call);
    }
  }
  expectSays(diagnose(reading),
             "ranks disagree at #1842: rank 0 called #1842 all_reduce bfloat16 x 4096; rank 1 "
             "called #1842 all_reduce bfloat16 max x 4096");
}

TEST(Doctor, AnOperatorAndARootMeanNothingToAnAllGather) {
  FlightReading reading = finishedJob(2);
  for (FlightSnapshot& snapshot : reading.snapshots) {
    FlightOperation call = operation(1841, ago(3), ago(2));
    call.function = Collective::kAllGather;
    call.op = snapshot.rank == 0 ? Operator::kSum : Operator::kMax;
    call.root = snapshot.rank;
    add(snapshot, call);
  }
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kIdle);
  expectSays(got, "all ranks idle; last finished #1841 all_gather bfloat16 x 4096, 2.0 s ago");
}

TEST(Doctor, ARootIsPartOfTheCall) {
  FlightReading reading = finishedJob(2);
  for (FlightSnapshot& snapshot : reading.snapshots) {
    FlightOperation call = operation(1841, ago(3));
    call.function = Collective::kReduce;
    call.root = snapshot.rank;
    add(snapshot, call);
  }
  expectSays(diagnose(reading),
             "ranks disagree at #1841: rank 0 called #1841 reduce bfloat16 x 4096 with root 0; rank "
             "1 called #1841 reduce bfloat16 x 4096 with root 1");
}

TEST(Doctor, SaysWhenRanksChoseDifferently) {
  FlightReading reading = finishedJob(2);
  for (FlightSnapshot& snapshot : reading.snapshots) {
    FlightOperation call = operation(1841, ago(3));
    call.algorithm = snapshot.rank == 0 ? algorithms::Algorithm::kRing : algorithms::Algorithm::kTree;
    add(snapshot, call);
  }
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kDisagree);
  expectSays(got,
             std::string("ranks ran #1841 differently: rank 0 ran ") + nameOf(algorithms::Algorithm::kRing) +
                 " with " + nameOf(algorithms::Protocol::kSimple) + "; rank 1 ran " +
                 nameOf(algorithms::Algorithm::kTree) + " with " + nameOf(algorithms::Protocol::kSimple));
}

TEST(Doctor, SaysWhatFailed) {
  FlightReading reading = finishedJob(2);
  FlightOperation failed = operation(1841, ago(30), ago(2));
  failed.state = OperationState::kFailed;
  failed.code = Code::kTimeout;
  failed.failedPeer = 1;
  add(reading.snapshots[0], failed);
  reading.snapshots[0].error = "no word from rank 1";
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kFailed);
  expectSays(
      got,
      "rank 0 (host h, pid 100): #1841 all_reduce bfloat16 x 4096 failed 2.0 s ago: timeout (about rank 1): "
      "no word from rank 1");
}

TEST(Doctor, SaysWhoAborted) {
  FlightReading reading = finishedJob(2);
  reading.snapshots[1].state = FlightState::kAborted;
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kFailed);
  expectSays(got, "rank 1 (host h, pid 101) aborted its communicator");
}

TEST(Doctor, SaysWhenAllAreInside) {
  FlightReading reading = finishedJob(3);
  for (FlightSnapshot& snapshot : reading.snapshots) {
    FlightOperation call = operation(1841, ago(9 - snapshot.rank));
    call.awaited = snapshot.rank == 2 ? -1 : 2;
    add(snapshot, call);
  }
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
  EXPECT_EQ(only(got).suspects, Ranks{2});
  expectSays(got,
             "all ranks are in #1841 all_reduce bfloat16 x 4096 since 9.0 s; rank 2 entered last, 7.0 s ago");
  expectSays(got, "ranks 0, 1 wait for rank 2");
}

TEST(Doctor, SaysWhoLeftAndWhoIsStopped) {
  FlightReading reading = finishedJob(3);
  add(reading.snapshots[0], operation(1841, ago(9), ago(8)));
  add(reading.snapshots[1], operation(1841, ago(9)));
  add(reading.snapshots[2], operation(1841, ago(8.5)));
  reading.snapshots[2].liveness = Liveness::kStopped;
  const Diagnosis got = diagnose(reading);
  expectSays(
      got,
      "ranks 1, 2 are in #1841 all_reduce bfloat16 x 4096 since 9.0 s; rank 0 has left it; rank 2 entered "
      "last, 8.5 s ago");
  expectSays(got, "rank 2 (host h, pid 102, its process is stopped) cannot go on");
  EXPECT_EQ(only(got).suspects, Ranks{2});
}

TEST(Doctor, NamesTheRanksThatWereNotRead) {
  FlightReading reading = finishedJob(6);
  reading.snapshots.resize(2);
  for (FlightSnapshot& snapshot : reading.snapshots) add(snapshot, operation(1841, ago(4)));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(only(got).suspects, (Ranks{2, 3, 4, 5}));
  expectSays(
      got, "ranks 0, 1 are in #1841 all_reduce bfloat16 x 4096 since 4.0 s; rank 0 entered last, 4.0 s ago");
  expectSays(got, "no recorder of ranks 2 to 5 was read: of another process or host, or gone");
}

TEST(Doctor, BusyIsNotStuck) {
  FlightReading reading = finishedJob(2);
  add(reading.snapshots[0], operation(1841, kNow - 3200));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWorking);
  EXPECT_TRUE(only(got).suspects.empty());
  expectSays(got, "rank 0 is in #1841 all_reduce bfloat16 x 4096 since 3.2 µs");
}

TEST(Doctor, IdleAndFinished) {
  FlightReading reading = finishedJob(2);
  Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kIdle);
  expectSays(got, "all ranks idle; last finished #1840 all_reduce bfloat16 x 4096, 2 min 0 s ago");
  for (FlightSnapshot& snapshot : reading.snapshots) {
    snapshot.state = FlightState::kFinalized;
    snapshot.liveness = Liveness::kGone;
  }
  got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kFinished);
  EXPECT_TRUE(only(got).suspects.empty());
}

TEST(Doctor, OneSidedOperationsAreTold) {
  FlightReading reading = finishedJob(3);
  add(reading.snapshots[0], transfer(Collective::kPut, 2, ago(6)));
  add(reading.snapshots[1], transfer(Collective::kWaitSignal, 2, ago(5)));
  add(reading.snapshots[2], transfer(Collective::kSignal, 0, ago(4)));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
  expectSays(got,
             "rank 0 (host h, pid 100) is in put_signal float32 x 64 to rank 2 since 6.0 s; rank 2 is in "
             "signal to rank 0 since 4.0 s");
  expectSays(got,
             "rank 1 (host h, pid 101) is in wait for 64 signals of rank 2 since 5.0 s; rank 2 is in signal "
             "to rank 0 since 4.0 s");
  expectSays(got,
             "rank 2 (host h, pid 102) is in signal to rank 0 since 4.0 s; rank 0 is in put_signal float32 x "
             "64 to rank 2 since 6.0 s");
}

TEST(Doctor, NothingBegun) {
  FlightReading reading;
  reading.snapshots.push_back(rankOf(0, 1));
  expectSays(diagnose(reading), "all ranks idle; no operation was begun");
}

TEST(Doctor, ALonelySendIsTold) {
  FlightReading reading = finishedJob(2);
  add(reading.snapshots[0], transfer(Collective::kSend, 1, ago(6)));
  const Diagnosis got = diagnose(reading);
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
  EXPECT_EQ(only(got).suspects, Ranks{1});
  expectSays(
      got,
      "rank 0 (host h, pid 100) is in send float32 x 64 to rank 1 since 6.0 s; rank 1 is in no operation; "
      "its last, #1840 all_reduce bfloat16 x 4096, finished 2 min 0 s ago");
}

TEST(Doctor, OfTwoRecordersOfOneRankTheYoungerCounts) {
  FlightReading reading = finishedJob(2);
  FlightSnapshot old = reading.snapshots[1];
  old.anchorRealtime -= 10 * kSecond;
  old.liveness = Liveness::kGone;
  reading.snapshots.push_back(old);
  EXPECT_EQ(diagnose(reading).verdict, Verdict::kIdle);
}

TEST(Doctor, TheWorstCommunicatorComesFirst) {
  FlightReading reading = finishedJob(2);
  FlightReading other = finishedJob(2);
  for (FlightSnapshot& snapshot : other.snapshots) {
    snapshot.communicator = ~uint64_t{0};
    reading.snapshots.push_back(snapshot);
  }
  add(reading.snapshots[2], operation(1841, ago(50)));
  const Diagnosis got = diagnose(reading);
  ASSERT_EQ(got.communicators.size(), 2u);
  EXPECT_EQ(got.communicators[0].communicator, ~uint64_t{0});
  EXPECT_EQ(got.verdict, Verdict::kWaiting);
}

TEST(Doctor, JsonHoldsWhatWasRead) {
  FlightReading reading = finishedJob(2);
  add(reading.snapshots[0], operation(1841, ago(4)));
  reading.snapshots[1].error = "quote \" and \\ and \xff";
  reading.problems.push_back("something else");
  const auto parsed = json::parse(diagnose(reading).json);
  ASSERT_TRUE(parsed.ok()) << lastError();
  const json::Value& root = parsed.value();
  EXPECT_EQ(root.textAt("schema", 99).value(), "stretto.doctor/1");
  EXPECT_EQ(root.textAt("verdict", 99).value(), "waiting");
  EXPECT_EQ(root.find("problems")->items().size(), 1u);
  const json::Value& communicator = root.find("communicators")->items()[0];
  EXPECT_EQ(communicator.textAt("id", 99).value(), "0000000000c0ffee");
  EXPECT_EQ(communicator.find("suspects")->items()[0].number(), 1);
  const json::Value& member = communicator.find("members")->items()[0];
  EXPECT_EQ(member.textAt("process", 99).value(), "sleeping");
  const json::Value& last = member.find("operations")->items()[1];
  EXPECT_EQ(last.integerAt("sequence", 0, 9999).value(), 1841);
  EXPECT_EQ(last.find("end_ns")->kind(), json::Kind::kNull);
  const int64_t expected = static_cast<int64_t>(1'700'000'000 * kSecond + ago(4) - kSecond);
  EXPECT_EQ(last.integerAt("start_ns", 0, INT64_MAX).value(), expected);
}

// The words of 12 ranks stay short, and hostile numbers stay numbers.
TEST(Doctor, ManyRanksAndStrangeNumbers) {
  FlightReading reading = finishedJob(12);
  for (int rank = 0; rank < 12; ++rank) {
    if (rank != 5) add(reading.snapshots[static_cast<size_t>(rank)], operation(1841, ago(3)));
  }
  expectSays(diagnose(reading),
             "rank 5 (host h, pid 105) has not entered #1841 all_reduce bfloat16 x 4096; ranks 0 to "
             "4, 6 to 11 wait since 3.0 s");
  for (FlightSnapshot& snapshot : reading.snapshots) {
    snapshot.anchorTicks = ~uint64_t{0};
    snapshot.anchorRealtime = ~uint64_t{0};
    for (FlightOperation& operation : snapshot.operations) operation.startTicks = 0;
  }
  EXPECT_TRUE(json::parse(diagnose(reading).json).ok()) << lastError();
}

TEST(Doctor, TargetsAreChecked) {
  for (const char* bad : {"1,,2", "0", ",", "99999999999999", "12,"}) {
    EXPECT_EQ(readTarget(bad).status().code, Code::kInvalidArgument) << bad;
  }
  EXPECT_EQ(readTarget("/nonexistent").status().code, Code::kSystem);
  EXPECT_EQ(readTarget(std::to_string(getpid())).status().code, Code::kInvalidUsage);
}

// The whole way: four processes of which one never enters, read by their pids while they spin.
TEST(DoctorOfProcesses, FindsTheMissingRank) {
  const testing::Watchdog watchdog("the doctor on live processes", 60);
  setenv("STRETTO_FLIGHT_DIR", "none", 1);
  constexpr int kRanks = 4;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  std::vector<pid_t> children;
  std::string target;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(50);
      auto recorder = FlightRecorder::open({currentIdentity().value(), 9, rank, kRanks, "0.1.0"});
      FlightRecord record;
      record.count = 4096;
      const auto seconds = static_cast<uint64_t>(platform::tickRate());
      for (uint64_t n = 1; n <= (rank == 2 ? 6u : 7u); ++n) {
        record.sequence = n;
        record.startTicks = platform::ticks() - 20 * seconds;  // as if it had begun 20 s ago
        const uint64_t place = recorder.value().begin(record);
        if (n < 7) recorder.value().end(place, kOkStatus, platform::ticks());
      }
      if (write(ready[1], "", 1) != 1) _exit(1);
      while (true) platform::relax();
    }
    children.push_back(pid);
    target += (target.empty() ? "" : ",") + std::to_string(pid);
  }
  for (char byte; const pid_t pid : children) {
    ASSERT_EQ(::read(ready[0], &byte, 1), 1) << pid;
  }
  const auto reading = readTarget(target);
  for (const pid_t pid : children) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  close(ready[0]);
  close(ready[1]);
  ASSERT_TRUE(reading.ok()) << lastError();
  const Diagnosis got = diagnose(reading.value());
  EXPECT_EQ(only(got).suspects, Ranks{2}) << got.text;
  EXPECT_NE(
      only(got).sentences[0].find("has not entered #7 all_reduce float32 x 4096; ranks 0, 1, 3 wait since 2"),
      std::string::npos)
      << got.text;
}

}  // namespace
}  // namespace stretto::observe
