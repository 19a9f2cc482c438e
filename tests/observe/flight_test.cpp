// The flight recorder, and its readers: what was written is read back whole, from a file, from a live,
// spinning, stopped or killed process, while it writes; and nothing hostile gets through.
#include "observe/flight.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <thread>
#include <utility>

#include "observe/flight_fixture.hpp"
#include "observe/flight_format.hpp"
#include "observe/flight_reader.hpp"
#include "platform/clock.hpp"

namespace stretto::observe {
namespace {

namespace files = std::filesystem;

void expectWhole(const FlightOperation& got) {
  const FlightRecord expected = recordOf(got.place);
  ASSERT_EQ(got.sequence, expected.sequence);
  ASSERT_EQ(got.startTicks, expected.startTicks);
  ASSERT_EQ(got.count, expected.count);
  ASSERT_EQ(got.function, expected.function);
  ASSERT_EQ(got.type, expected.type);
  ASSERT_EQ(got.op, expected.op);
  ASSERT_EQ(got.algorithm, expected.algorithm);
  ASSERT_EQ(got.protocol, expected.protocol);
  ASSERT_EQ(got.root, expected.root);
  ASSERT_EQ(got.peer, expected.peer);
  ASSERT_EQ(got.enqueued, expected.enqueued);
  if (got.state == OperationState::kDone) {
    ASSERT_EQ(got.endTicks, expected.startTicks + 3);
  }
}

TEST_F(FlightTest, ReadsBackWhatWasWritten) {
  FlightRecorder recorder = openRecorder(0xabc, 2, 6);
  for (uint64_t n = 1; n <= 5; ++n) {
    const uint64_t place = recorder.begin(recordOf(n));
    EXPECT_EQ(place, n);
    if (n == 3) recorder.end(place, Status{Code::kRemote, 4}, 99);
    if (n != 3 && n != 5) recorder.end(place, kOkStatus, recordOf(n).startTicks + 3);
  }
  recorder.waiting(5, 1);
  recorder.note("rank 4 went away");
  const FlightSnapshot got = readOwn();
  EXPECT_EQ(got.communicator, 0xabcu);
  EXPECT_EQ(got.rank, 2);
  EXPECT_EQ(got.ranks, 6);
  EXPECT_EQ(got.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(got.library, "0.1.0");
  EXPECT_EQ(got.error, "rank 4 went away");
  EXPECT_EQ(got.state, FlightState::kAlive);
  EXPECT_EQ(got.begun, 5u);
  EXPECT_EQ(got.unreadable, 0u);
  EXPECT_GT(got.readTicks, got.anchorTicks);
  ASSERT_EQ(got.operations.size(), 5u);
  for (const auto& operation : got.operations) expectWhole(operation);
  EXPECT_EQ(got.operations[0].state, OperationState::kDone);
  EXPECT_EQ(got.operations[2].state, OperationState::kFailed);
  EXPECT_EQ(got.operations[2].code, Code::kRemote);
  EXPECT_EQ(got.operations[2].failedPeer, 4);
  EXPECT_EQ(got.operations[2].endTicks, 99u);
  EXPECT_EQ(got.operations[4].state, OperationState::kRunning);
  EXPECT_EQ(got.operations[4].awaited, 1);
}

TEST_F(FlightTest, KeepsTheLastAndIgnoresEndsOfTheOverwritten) {
  FlightRecorder recorder = openRecorder(1, 0, 6);
  for (uint64_t n = 1; n <= 1000; ++n) recorder.begin(recordOf(n));
  recorder.end(3, kOkStatus, 1);
  recorder.end(1000 - kFlightRecords, kOkStatus, 1);
  recorder.end(1000 - kFlightRecords + 1, kOkStatus, recordOf(1000 - kFlightRecords + 1).startTicks + 3);
  const FlightSnapshot got = readOwn();
  ASSERT_EQ(got.operations.size(), kFlightRecords);
  EXPECT_EQ(got.operations.front().place, 1000 - kFlightRecords + 1);
  EXPECT_EQ(got.operations.front().state, OperationState::kDone);
  EXPECT_EQ(got.operations.back().place, 1000u);
  for (size_t i = 1; i < got.operations.size(); ++i) {
    EXPECT_EQ(got.operations[i].state, OperationState::kRunning);
  }
}

TEST_F(FlightTest, LongErrorsAreCutAndTheUnopenedIsSilent) {
  FlightRecorder recorder = openRecorder(1, 0, 1);
  recorder.note(std::string(1000, 'x').c_str());
  EXPECT_EQ(readOwn().error, std::string(kFlightErrorBytes - 1, 'x'));
  FlightRecorder empty;
  EXPECT_EQ(empty.begin({}), 0u);
  empty.end(0, kOkStatus, 1);
  empty.waiting(0, 1);
  empty.note("nothing");
  empty.setState(FlightState::kAborted);
}

TEST_F(FlightTest, LeavesNothingWhereNobodyWantsFiles) {
  {
    FlightRecorder recorder = openRecorder(1, 0, 1);
    recorder.note("an error");
    EXPECT_EQ(recorder.path(), "");
    EXPECT_EQ(readOwn().error, "an error");
  }
  EXPECT_EQ(readProcess(getpid()).status().code, Code::kInvalidUsage) << "the mapping is gone too";
}

TEST_F(FlightTest, FileIsPrivateNamedAndNeverReplaced) {
  useDirectory();
  FlightRecorder recorder = openRecorder(0xfeed, 3, 4);
  const std::string name = files::path(recorder.path()).filename();
  EXPECT_TRUE(name.starts_with("stretto-")) << name;
  const std::string end = "-" + std::to_string(getpid()) + "-000000000000feed-3.flight";
  EXPECT_TRUE(name.ends_with(end)) << name;
  struct stat facts {};
  ASSERT_EQ(stat(recorder.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(FlightRecorder::open(identityOf(0xfeed, 3, 4)).status().code, Code::kSystem);
  EXPECT_NE(lastError().find(name), std::string::npos);
  EXPECT_EQ(readOwn().rank, 3) << "a file is found in the process as well";
}

TEST_F(FlightTest, AMissingDirectoryIsAnError) {
  setenv("STRETTO_FLIGHT_DIR", (directory_ / "none").c_str(), 1);
  EXPECT_EQ(FlightRecorder::open(identityOf(1, 0, 1)).status().code, Code::kSystem);
}

TEST_F(FlightTest, StateSaysHowItEnded) {
  useDirectory();
  { const FlightRecorder recorder = openRecorder(1, 0, 3); }
  {
    FlightRecorder recorder = openRecorder(1, 1, 3);
    recorder.setState(FlightState::kAborted);
  }
  FlightRecorder recorder = openRecorder(1, 2, 3);
  const auto reading = readDirectory(directory_);
  ASSERT_TRUE(reading.ok()) << lastError();
  ASSERT_EQ(reading.value().snapshots.size(), 3u);
  EXPECT_EQ(reading.value().snapshots[0].state, FlightState::kFinalized);
  EXPECT_EQ(reading.value().snapshots[1].state, FlightState::kAborted);
  EXPECT_EQ(reading.value().snapshots[2].state, FlightState::kAlive);
  EXPECT_NE(reading.value().snapshots[2].liveness, Liveness::kGone);
}

// One writer at full speed; readers by memory and by file see whole records only, and progress.
TEST_F(FlightTest, ConsistentWhileItIsWritten) {
  useDirectory();
  FlightRecorder recorder = openRecorder(1, 0, 6);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t n = 1; !stop.load(std::memory_order_relaxed); ++n) {
      const uint64_t place = recorder.begin(recordOf(n));
      recorder.waiting(place, 2);
      recorder.end(place, kOkStatus, recordOf(n).startTicks + 3);
    }
  });
  std::thread complainer([&] {
    const std::string a(200, 'a');
    const std::string b(200, 'b');
    while (!stop.load(std::memory_order_relaxed)) {
      recorder.note(a.c_str());
      recorder.note(b.c_str());
    }
  });
  uint64_t lastPlace = 0;
  size_t records = 0;
  for (int i = 0; i < 1000 && !HasFatalFailure(); ++i) {
    const auto reading = i % 2 == 0 ? readProcess(getpid()) : readDirectory(directory_);
    if (!reading.ok() || reading.value().snapshots.size() != 1) {
      ADD_FAILURE() << lastError();
      break;
    }
    const FlightSnapshot& got = reading.value().snapshots.front();
    for (const auto& operation : got.operations) expectWhole(operation);
    records += got.operations.size();
    const bool whole = got.error.find_first_not_of('a') == std::string::npos ||
                       got.error.find_first_not_of('b') == std::string::npos ||
                       got.error.find("(perhaps torn)") != std::string::npos;
    EXPECT_TRUE(whole) << got.error;
    if (!got.operations.empty()) {
      EXPECT_GE(got.operations.back().place, lastPlace);
      lastPlace = got.operations.back().place;
    }
  }
  stop = true;
  writer.join();
  complainer.join();
  EXPECT_GT(records, 0u);
}

// A child process that opens a recorder, begins operation 7 and then does `body`; killed when this goes.
class Child {
 public:
  template <typename Body>
  explicit Child(Body&& body) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      alarm(100);
      auto* recorder = new FlightRecorder(openRecorder(0x77, 1, 4));
      FlightRecord record;
      record.sequence = 7;
      record.startTicks = platform::ticks();
      recorder->begin(record);
      const char one = 1;
      if (write(ready[1], &one, 1) != 1) _exit(1);
      body();
      _exit(0);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  ~Child() { finish(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void finish() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

void expectSeven(const Result<FlightReading>& reading) {
  ASSERT_TRUE(reading.ok()) << lastError();
  ASSERT_EQ(reading.value().snapshots.size(), 1u);
  const FlightSnapshot& got = reading.value().snapshots.front();
  ASSERT_EQ(got.operations.size(), 1u);
  EXPECT_EQ(got.operations[0].sequence, 7u);
  EXPECT_EQ(got.operations[0].state, OperationState::kRunning);
  EXPECT_EQ(got.rank, 1);
}

void spin() {
  volatile bool forever = true;
  while (forever) platform::relax();
}

class FlightOfProcesses : public FlightTest {};

TEST_F(FlightOfProcesses, IsReadWhileTheySpin) {
  const Child child(spin);
  expectSeven(readProcess(child.pid()));
}

TEST_F(FlightOfProcesses, IsReadWhileTheySleepAndWhenTheyAreStopped) {
  const Child child([] {
    while (true) pause();
  });
  expectSeven(readProcess(child.pid()));
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  const auto reading = readProcess(child.pid());
  expectSeven(reading);
  EXPECT_EQ(reading.value().snapshots.front().liveness, Liveness::kStopped);
}

TEST_F(FlightOfProcesses, OutlivesThoseThatAreKilled) {
  useDirectory();
  Child child(spin);
  const pid_t pid = child.pid();
  expectSeven(readDirectory(directory_));
  child.finish();
  const auto reading = readDirectory(directory_);
  expectSeven(reading);
  EXPECT_EQ(reading.value().snapshots.front().liveness, Liveness::kGone);
  EXPECT_EQ(reading.value().snapshots.front().state, FlightState::kAlive);
  EXPECT_EQ(readProcess(pid).status().code, Code::kInvalidArgument);
}

TEST_F(FlightOfProcesses, OfAZombieHasEnded) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(readProcess(pid).status().code, Code::kInvalidArgument);
  EXPECT_NE(lastError().find("zombie"), std::string::npos) << lastError();
  waitpid(pid, nullptr, 0);
}

TEST_F(FlightOfProcesses, AForkedChildNeitherSpeaksForItsParentNorCounts) {
  FlightRecorder recorder = openRecorder(1, 0, 2);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(100);
    recorder.note("from the child");
    { const FlightRecorder gone = std::move(recorder); }
    if (write(ready[1], "", 1) != 1) _exit(1);
    // Mapped again, as a copy whose destructor did not run would be.
    pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(readOwn().state, FlightState::kAlive);
  EXPECT_EQ(readOwn().error, "");
  EXPECT_EQ(readProcess(pid).status().code, Code::kInvalidUsage);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(FlightOfProcesses, AChildThatStillMapsTheParentsRecorderIsNotTheRank) {
  const FlightRecorder recorder = openRecorder(1, 0, 2);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(100);
    while (true) pause();
  }
  EXPECT_EQ(readProcess(pid).status().code, Code::kInvalidUsage);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// Files that are not recorders, or are damaged ones.
class FlightFileTest : public FlightTest {
 protected:
  void SetUp() override {
    FlightTest::SetUp();
    useDirectory();
    FlightRecorder recorder = openRecorder(5, 0, 6);
    for (uint64_t n = 1; n <= 20; ++n) {
      recorder.end(recorder.begin(recordOf(n)), kOkStatus, recordOf(n).startTicks + 3);
    }
    std::ifstream file(recorder.path(), std::ios::binary);
    good_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_EQ(good_.size(), kFlightBytes);
    files::remove(recorder.path());
  }
  void writeFile(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
  }
  template <typename T>
  std::string with(size_t offset, T value) const {
    std::string bytes = good_;
    memcpy(bytes.data() + offset, &value, sizeof value);
    return bytes;
  }
  // Nothing is read, and the reason contains `reason`.
  void expectRefused(const std::string& bytes, const std::string& reason) {
    writeFile("bad.flight", bytes);
    const auto reading = readDirectory(directory_);
    ASSERT_TRUE(reading.ok()) << lastError();
    EXPECT_TRUE(reading.value().snapshots.empty()) << reason;
    ASSERT_EQ(reading.value().problems.size(), 1u) << reason;
    EXPECT_NE(reading.value().problems[0].find(reason), std::string::npos) << reading.value().problems[0];
  }

  std::string good_;
};

TEST_F(FlightFileTest, RefusesDamagedHeaders) {
  const double nan = std::nan("");
  expectRefused(good_.substr(0, 1000), "1000 bytes long");
  expectRefused("", "0 bytes long");
  expectRefused(good_ + "x", "bytes long");
  expectRefused(std::string(kFlightBytes, '\0'), "not a flight recorder");
  expectRefused(with(offsetof(FlightHeader, version), kFlightVersion + 1),
                "version " + std::to_string(kFlightVersion + 1));
  expectRefused(with(offsetof(FlightHeader, records), uint64_t{1} << 40), "version");
  expectRefused(with(offsetof(FlightHeader, headerBytes), ~uint64_t{0}), "version");
  expectRefused(with(offsetof(FlightHeader, rank), uint64_t{6}), "makes no sense");
  expectRefused(with(offsetof(FlightHeader, ranks), uint64_t{0}), "makes no sense");
  expectRefused(with(offsetof(FlightHeader, ranks), ~uint64_t{0}), "makes no sense");
  expectRefused(with(offsetof(FlightHeader, tickRate), nan), "makes no sense");
  expectRefused(with(offsetof(FlightHeader, tickRate), 0.0), "makes no sense");
  expectRefused(with(offsetof(FlightHeader, pid), uint64_t{0}), "makes no sense");
}

TEST_F(FlightFileTest, LeavesOutDamagedRecordsAndReadsTheRest) {
  const size_t third = kFlightHeaderBytes + 3 * sizeof(FlightSlot);
  const auto count = [&](const std::string& bytes) {
    writeFile("one.flight", bytes);
    const auto reading = readDirectory(directory_);
    EXPECT_TRUE(reading.ok() && reading.value().snapshots.size() == 1) << lastError();
    const auto& got = reading.value().snapshots.front();
    EXPECT_EQ(got.unreadable + got.operations.size(), 20u);
    return got.operations.size();
  };
  EXPECT_EQ(count(good_), 20u);
  EXPECT_EQ(count(with(third + offsetof(FlightSlot, position), uint64_t{4})), 19u);
  EXPECT_EQ(count(with(third + offsetof(FlightSlot, kind), uint64_t{kCalls})), 19u);
  EXPECT_EQ(count(with(third + offsetof(FlightSlot, kind), ~uint64_t{0})), 19u);
  EXPECT_EQ(count(with(third + offsetof(FlightSlot, ranks), uint64_t{7})), 19u);
  EXPECT_EQ(count(with(third + offsetof(FlightSlot, outcome), uint64_t{0})), 19u);
  EXPECT_EQ(count(with(third + offsetof(FlightSlot, outcome), uint64_t{4})), 19u);
}

// Whatever differs between the two copies was being written; only a running operation may end in between.
TEST_F(FlightFileTest, WhatChangedBetweenTheCopiesIsLeftOut) {
  const size_t third = kFlightHeaderBytes + 3 * sizeof(FlightSlot);
  const auto read = [](const std::string& first, const std::string& second) {
    const auto got = parseFlight(std::as_bytes(std::span(first)), std::as_bytes(std::span(second)));
    EXPECT_TRUE(got.ok()) << lastError();
    EXPECT_EQ(got.value().unreadable + got.value().operations.size(), 20u);
    return got.value();
  };
  EXPECT_EQ(read(good_, good_).unreadable, 0u);
  for (size_t word = 0; word < sizeof(FlightSlot) / 8; ++word) {
    const std::string changed = with(third + 8 * word, uint64_t{1});
    EXPECT_EQ(read(good_, changed).unreadable, 1u) << "word " << word;
    if (8 * word == offsetof(FlightSlot, outcome)) continue;
    EXPECT_EQ(read(changed, good_).unreadable, 1u) << "word " << word;
  }
  const std::string running = with(third + offsetof(FlightSlot, outcome), uint64_t{1});
  const FlightSnapshot ended = read(running, good_);
  EXPECT_EQ(ended.unreadable, 0u);
  EXPECT_EQ(ended.operations[2].state, OperationState::kRunning);
  EXPECT_EQ(ended.operations[2].endTicks, 0u);
}

TEST_F(FlightFileTest, TextsEndAndAreTame) {
  std::string bytes = good_;
  memset(bytes.data() + offsetof(FlightHeader, host), '\x1b', kFlightHostBytes);
  memset(bytes.data() + offsetof(FlightHeader, errorText), '\n', kFlightErrorBytes);
  bytes[offsetof(FlightHeader, errorVersion)] = 2;
  writeFile("one.flight", bytes);
  const auto reading = readDirectory(directory_);
  ASSERT_TRUE(reading.ok() && reading.value().snapshots.size() == 1);
  EXPECT_EQ(reading.value().snapshots[0].host, std::string(kFlightHostBytes - 1, '?'));
  EXPECT_EQ(reading.value().snapshots[0].error, std::string(kFlightErrorBytes - 1, '?'));
}

TEST_F(FlightFileTest, PipesLinksAndDirectoriesDoNotLeadAstray) {
  writeFile("real", good_);
  files::create_symlink(directory_ / "real", directory_ / "link.flight");
  files::create_directory(directory_ / "folder.flight");
  ASSERT_EQ(mkfifo((directory_ / "pipe.flight").c_str(), 0600), 0);
  const auto reading = readDirectory(directory_);
  ASSERT_TRUE(reading.ok());
  EXPECT_TRUE(reading.value().snapshots.empty());
  EXPECT_EQ(reading.value().problems.size(), 3u);
}

TEST_F(FlightFileTest, AnotherBootsProcessIsNotCalledDead) {
  writeFile("one.flight", with(offsetof(FlightHeader, bootId), uint64_t{12345}));
  const auto reading = readDirectory(directory_);
  ASSERT_TRUE(reading.ok() && reading.value().snapshots.size() == 1);
  EXPECT_EQ(reading.value().snapshots[0].liveness, Liveness::kUnknown);
  EXPECT_EQ(reading.value().snapshots[0].readTicks, 0u);
}

TEST_F(FlightFileTest, AReusedPidIsNotTheRank) {
  writeFile("one.flight", with(offsetof(FlightHeader, startTime), uint64_t{1}));
  const auto reading = readDirectory(directory_);
  ASSERT_TRUE(reading.ok() && reading.value().snapshots.size() == 1);
  EXPECT_EQ(reading.value().snapshots[0].liveness, Liveness::kGone);
}

TEST_F(FlightTest, NothingToReadIsSaid) {
  EXPECT_EQ(readDirectory(directory_).status().code, Code::kInvalidUsage);
  EXPECT_EQ(readDirectory(directory_ / "none").status().code, Code::kSystem);
  EXPECT_EQ(readProcess(-1).status().code, Code::kInvalidArgument);
  EXPECT_EQ(readProcess(0).status().code, Code::kInvalidArgument);
  EXPECT_EQ(readProcess(getpid()).status().code, Code::kInvalidUsage);
}

class FlightCost : public FlightTest {};

TEST_F(FlightCost, OfOneRecord) {
  FlightRecorder recorder = openRecorder(1, 0, 6);
  const FlightRecord record = recordOf(4);
  constexpr int kRounds = 15;
  constexpr int kRepetitions = 20000;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t from = platform::monotonicNanoseconds();
    for (int i = 0; i < kRepetitions; ++i) recorder.end(recorder.begin(record), kOkStatus, 17);
    best = std::min(best, static_cast<double>(platform::monotonicNanoseconds() - from) / kRepetitions);
  }
  printf("flight recorder: begin and end together %.1f ns\n", best);
  RecordProperty("begin_end_ns", std::to_string(best));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && defined(NDEBUG)
  EXPECT_LT(best, 15.0);
#endif
}

}  // namespace
}  // namespace stretto::observe
