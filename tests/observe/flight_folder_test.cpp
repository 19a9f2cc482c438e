// Where flight recorders lie as files: those of what ends in peace go, others stay, whatever their process
// died of, and there are never too many.
#include "observe/flight_folder.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "harness/captured_log.hpp"
#include "harness/own_file_system.hpp"
#include "observe/doctor.hpp"
#include "observe/flight_fixture.hpp"
#include "observe/flight_format.hpp"
#include "platform/clock.hpp"

namespace stretto::observe {
namespace {

namespace files = std::filesystem;
volatile uintptr_t nowhere = 16;  // the compiler knows better than to write there
constexpr int kMost = (16 << 20) / static_cast<int>(kFlightBytes);

// Writes a word of the file: of its header, or behind that.
void setWord(const std::string& path, size_t offset, uint64_t word) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset)).write(reinterpret_cast<const char*>(&word), sizeof word);
  EXPECT_TRUE(file.flush().good()) << path;
}
// All that the recorder says was so long ago, but for what its operations say.
void setAge(const std::string& path, uint64_t seconds) {
  setWord(path, offsetof(FlightHeader, anchorRealtime),
          platform::realtimeNanoseconds() - seconds * 1000000000);
}
void setCommunicator(const std::string& path, uint64_t number) {
  setWord(path, offsetof(FlightHeader, communicator), number);
}
// It is of a process that cannot be seen from here.
void makeUnseen(const std::string& path, uint64_t startTime) {
  setWord(path, offsetof(FlightHeader, pidNamespace), 1);
  setWord(path, offsetof(FlightHeader, startTime), startTime);
}
// Another process has its number now.
void makeGone(const std::string& path, uint64_t startTime) {
  setWord(path, offsetof(FlightHeader, startTime), startTime);
}

// The folder where recorders lie by default: what ended in peace leaves nothing there.
class FlightFolderTest : public FlightTest {
 protected:
  FlightRecorder open(int rank) const {
    auto recorder = FlightRecorder::open(identityOf(0xf0, rank, 1000), {folder_, false});
    EXPECT_TRUE(recorder.ok()) << lastError();
    return std::move(recorder.value());
  }
  size_t count() const {
    return static_cast<size_t>(
        std::distance(files::directory_iterator(folder_), files::directory_iterator{}));
  }
  // What a communicator leaves that was aborted in an operation: its file.
  std::string leaveEnded(uint64_t seconds) const {
    FlightRecorder recorder = open(0);
    recorder.begin(recordOf(1));
    recorder.setState(FlightState::kAborted);
    const std::string path = recorder.path();
    recorder = FlightRecorder();
    setAge(path, seconds);
    return path;
  }
  // So many files like that one, called NAME-0.flight and so on.
  void multiply(const std::string& path, const std::string& name, int copies) const {
    for (int i = 0; i < copies; ++i)
      files::copy_file(path, folder_ + "/" + name + "-" + std::to_string(i) + ".flight");
  }
  bool exists(const std::string& name) const { return files::exists(folder_ + "/" + name + ".flight"); }
  // Of what `body` answers in a child that has a file system of its own there; skips where it can have none.
  template <typename Body>
  void inOwnFileSystem(int kilobytes, const Body& body) {
    constexpr int kNotAllowed = 77;
    files::create_directory(folder_);
    files::permissions(folder_, files::perms::owner_all);
    const pid_t pid = fork();
    if (pid == 0) _exit(!testing::mountOwn(folder_, kilobytes) ? kNotAllowed : body() ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "may not mount here";
    EXPECT_EQ(status, 0);
  }
  // Of a child that opens a recorder, has #7 under way, and does `body`.
  template <typename Body>
  int statusOf(const Body& body) const {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(100);
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
      for (const int number : {SIGSEGV, SIGABRT}) signal(number, SIG_DFL);  // not a sanitizer's
      auto* recorder = new FlightRecorder(open(3));
      FlightRecord record;
      record.sequence = 7;
      record.startTicks = platform::ticks();
      body(*recorder, recorder->begin(record));
      pause();
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
  // What that left is there, and tells the operation that it died in.
  void expectDeath() {
    ASSERT_EQ(count(), 1u);
    const auto reading = readLastJob(folder_);
    ASSERT_TRUE(reading.ok()) << lastError();
    const std::string text = diagnose(reading.value()).text;
    EXPECT_NE(text.find("rank 3 died (pid "), std::string::npos) << text;
    EXPECT_NE(text.find("is gone) in #7 all_reduce"), std::string::npos) << text;
    files::remove_all(folder_);
  }

  const std::string folder_ = directory_ / "kept";
};

TEST_F(FlightFolderTest, KeepsWhatDidNotEndInPeace) {
  { const FlightRecorder recorder = open(0); }
  EXPECT_EQ(count(), 0u) << "in peace";
  {
    FlightRecorder recorder = open(0);
    recorder.end(recorder.begin(recordOf(1)), kOkStatus, 9);
    EXPECT_EQ(count(), 1u);
    recorder.setState(FlightState::kAborted);
  }
  EXPECT_EQ(count(), 0u) << "aborted between operations";
  {
    FlightRecorder recorder = open(0);
    recorder.begin(recordOf(1));
    recorder.setState(FlightState::kAborted);
  }
  EXPECT_EQ(count(), 1u) << "aborted in an operation";
  {
    FlightRecorder recorder = open(1);
    recorder.note("rank 4 went away");
  }
  EXPECT_EQ(count(), 2u) << "failed";
}

TEST_F(FlightFolderTest, HasTheLastOperationsOfWhoeverDies) {
  for (const int number : {SIGSEGV, SIGABRT, SIGKILL, SIGTERM}) {
    const int status = statusOf([number](FlightRecorder&, uint64_t) { raise(number); });
    EXPECT_EQ(WTERMSIG(status), number);
    expectDeath();
  }
  EXPECT_EQ(WTERMSIG(statusOf([](FlightRecorder&, uint64_t) { abort(); })), SIGABRT);
  expectDeath();
  statusOf([](FlightRecorder&, uint64_t) { *reinterpret_cast<volatile int*>(nowhere) = 1; });
  expectDeath();
}

TEST_F(FlightFolderTest, KeepsNothingOfAProcessThatExitsInPeaceWithoutClosing) {
  const auto leave = [this](int with, bool inOperation) {
    const int status = statusOf([=](FlightRecorder& recorder, uint64_t place) {
      if (!inOperation) recorder.end(place, kOkStatus, platform::ticks());
      std::exit(with);
    });
    EXPECT_EQ(WEXITSTATUS(status), with);
    const size_t left = count();
    files::remove_all(folder_);
    return left;
  };
  EXPECT_EQ(leave(0, false), 0u);
  EXPECT_EQ(leave(0, true), 1u) << "in an operation";
  EXPECT_EQ(leave(1, false), 1u) << "by an error";
}

TEST_F(FlightFolderTest, IsBounded) {
  const FlightRecorder oldest = open(999);
  const pid_t pid = fork();
  if (pid == 0) {
    for (int rank = 0; rank < kMost - 1; ++rank) {
      auto other = FlightRecorder::open(identityOf(0xf1, rank, 1000), {folder_, false});
      new FlightRecorder(std::move(other.value()));
    }
    _exit(count() == kMost ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
  const FlightRecorder next = open(998);
  EXPECT_EQ(count(), static_cast<size_t>(kMost / 2 + 1));
  EXPECT_TRUE(files::exists(oldest.path())) << "of a process that lives";
  EXPECT_TRUE(files::exists(next.path()));
}

TEST_F(FlightFolderTest, EndedCommunicatorsOfALivingProcessDoNotFillIt) {
  multiply(leaveEnded(120), "ended", kMost - 1);
  EXPECT_NE(open(1).path(), "");
  EXPECT_EQ(count(), static_cast<size_t>(kMost / 2));
}

TEST_F(FlightFolderTest, TheNewestEndedOfAProcessStay) {
  const FlightRecorder alive = open(1);
  setAge(alive.path(), 9999);
  multiply(alive.path(), "alive", kMost - 22);
  const std::string ended = leaveEnded(120);
  multiply(ended, "later", 16);
  setAge(ended, 130);
  multiply(ended, "earlier", 4);
  ASSERT_EQ(count(), static_cast<size_t>(kMost));
  EXPECT_NE(open(2).path(), "");
  EXPECT_TRUE(exists("later-0") && exists("later-15") && files::exists(alive.path()));
  EXPECT_FALSE(exists("earlier-0") || exists("earlier-3") || files::exists(ended));
}

TEST_F(FlightFolderTest, ThatItIsFullIsRememberedForSeconds) {
  bool remembered = false;
  for (int attempt = 0; attempt < 5 && !remembered; ++attempt) {  // a stop of seconds may lie between
    multiply(leaveEnded(0), "fresh", kMost - 1);
    EXPECT_EQ(open(2).path(), "") << "what is fresh stays";
    files::remove_all(folder_);
    remembered = open(2).path().empty();
    std::this_thread::sleep_for(std::chrono::seconds(remembered ? 0 : 6));
  }
  EXPECT_TRUE(remembered);
}

TEST_F(FlightFolderTest, WhatCannotBeReadGoesAfterAnHour) {
  const std::string ended = leaveEnded(0);
  std::ofstream(folder_ + "/short.flight") << "cut";
  multiply(folder_ + "/short.flight", "short", kMost - 3);
  for (const auto& entry : files::directory_iterator(folder_))
    files::last_write_time(entry, files::file_time_type::clock::now() - std::chrono::hours(2));
  std::ofstream(folder_ + "/new.flight") << "cut";
  testing::CapturedWarnings warnings;
  EXPECT_NE(open(2).path(), "");
  EXPECT_EQ(warnings.take(), "");
  EXPECT_TRUE(exists("new") && files::exists(ended));
  EXPECT_EQ(count(), static_cast<size_t>(kMost / 2));
}

TEST_F(FlightFolderTest, WhatWroteLastGoesLast) {
  const std::string file = leaveEnded(200);
  makeGone(file, 1);
  setCommunicator(file, 0xf1);
  multiply(file, "quiet", kMost - 2);
  setAge(file, 3600);
  const uint64_t later = platform::ticks() + 3500 * static_cast<uint64_t>(platform::tickRate());
  setWord(file, kFlightHeaderBytes + sizeof(FlightSlot) + offsetof(FlightSlot, startTicks), later);
  multiply(file, "busy", 1);
  EXPECT_NE(open(2).path(), "");
  EXPECT_TRUE(exists("busy-0")) << "made first, and wrote last";
  EXPECT_EQ(count(), static_cast<size_t>(kMost / 2));
}

TEST_F(FlightFolderTest, ADeadRankOfAJobThatLivesStays) {
  const FlightRecorder alive = open(1);
  const std::string dead = leaveEnded(7200);  // of the same communicator
  makeGone(dead, 1);
  multiply(dead, "of-the-job", 1);
  makeGone(dead, 2);
  setCommunicator(dead, 0xf1);
  setAge(dead, 300);
  multiply(dead, "of-another", kMost - 3);
  EXPECT_NE(open(2).path(), "");
  EXPECT_TRUE(exists("of-the-job-0"));
  EXPECT_EQ(count(), static_cast<size_t>(kMost / 2));
}

TEST_F(FlightFolderTest, OfContainersTheNewestJobStays) {
  const std::string file = leaveEnded(300);
  makeUnseen(file, 1);
  setCommunicator(file, 0xf1);
  multiply(file, "earlier", kMost - 3);
  makeUnseen(file, 2);
  setCommunicator(file, 0xf2);
  setAge(file, 7200);
  multiply(file, "newest-job", 1);
  setAge(file, 290);
  multiply(file, "newest", 1);
  ASSERT_EQ(count(), static_cast<size_t>(kMost));
  EXPECT_NE(open(2).path(), "");
  EXPECT_TRUE(exists("newest-0") && exists("newest-job-0"));
  EXPECT_EQ(count(), static_cast<size_t>(kMost / 2));
}

TEST_F(FlightFolderTest, TakesASixteenthOfASmallFileSystem) {
  inOwnFileSystem(1024, [this] {
    const std::string dead = leaveEnded(300);
    makeGone(dead, 1);
    setCommunicator(dead, 0xf1);
    multiply(dead, "dead", 2);
    const bool made = !open(2).path().empty();
    return made && count() == 1;
  });
}

TEST_F(FlightFolderTest, WithoutSpaceTheDeadMakeRoom) {
  inOwnFileSystem(1024, [this] {
    const std::string dead = leaveEnded(300);
    makeGone(dead, 1);
    setCommunicator(dead, 0xf1);
    std::ofstream(folder_ + "/big") << std::string(2 << 20, 'x');
    const bool made = !open(2).path().empty();
    return made && !files::exists(dead);
  });
}

TEST_F(FlightFolderTest, OfSomebodyElseIsNotUsed) {
  files::create_directory(folder_);
  files::permissions(folder_, files::perms::group_write, files::perm_options::add);
  EXPECT_EQ(open(0).path(), "") << "others could put files there";
  files::remove(folder_);
  files::create_directory_symlink(directory_, folder_);
  EXPECT_EQ(open(0).path(), "");
  files::remove(folder_);
  std::ofstream(folder_) << "a file";
  FlightRecorder recorder = open(0);
  EXPECT_EQ(recorder.path(), "");
  recorder.begin(recordOf(1));
  EXPECT_EQ(readOwn().operations.size(), 1u) << "it records all the same";
}

TEST_F(FlightFolderTest, OfSomebodyElseIsNotRead) {
  const FlightRecorder recorder = open(0);
  const std::string link = directory_ / "link";
  files::create_directory_symlink(folder_, link);
  EXPECT_FALSE(readLastJob(link).ok());
  EXPECT_NE(lastError().find("of this user alone"), std::string::npos) << lastError();
  EXPECT_TRUE(readDirectory(link).ok()) << "somebody named it";
  files::permissions(folder_, files::perms::group_write, files::perm_options::add);
  EXPECT_FALSE(readLastJob(folder_).ok());
}

TEST_F(FlightFolderTest, ThatItIsNotUsedIsSaidOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process that has not said it yet
  const auto refused = [this] {
    testing::CapturedWarnings warnings;
    std::ofstream(folder_) << "a file";
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(open(rank).path(), "");
    _exit(static_cast<int>(testing::timesIn(warnings.take(), "is not a folder of this user alone")));
  };
  EXPECT_EXIT(refused(), ::testing::ExitedWithCode(1), "");
}

TEST_F(FlightFolderTest, TheLastJobIsOneOfSeveral) {
  EXPECT_EQ(readLastJob(folder_).status().code, Code::kInvalidUsage);
  statusOf([](FlightRecorder&, uint64_t) { raise(SIGKILL); });
  auto later = FlightRecorder::open(identityOf(0xf1, 0, 2), {folder_, false});
  auto sibling = FlightRecorder::open(identityOf(0xf2, 0, 2), {folder_, false});
  ASSERT_TRUE(later.ok() && sibling.ok()) << lastError();
  const auto reading = readLastJob(folder_);
  ASSERT_TRUE(reading.ok()) << lastError();
  EXPECT_EQ(reading.value().snapshots.size(), 2u) << "both communicators of the process";
  ASSERT_EQ(reading.value().problems.size(), 1u);
  EXPECT_EQ(reading.value().problems[0], "1 recorders of other jobs in " + folder_);
}

TEST_F(FlightFolderTest, FilesAndFoldersAreReadTogether) {
  useDirectory();
  const FlightRecorder one = openRecorder(1, 0, 2);
  files::create_directory(folder_);
  setenv("STRETTO_FLIGHT_DIR", folder_.c_str(), 1);
  const FlightRecorder other = openRecorder(1, 1, 2);
  const auto reading = readPaths(one.path() + "\n" + folder_);
  ASSERT_TRUE(reading.ok()) << lastError();
  EXPECT_EQ(reading.value().snapshots.size(), 2u);
  EXPECT_EQ(readPaths(one.path() + "\n/nonexistent").status().code, Code::kSystem);
}

}  // namespace
}  // namespace stretto::observe
