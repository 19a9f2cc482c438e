// Where flight recorders lie as files: those of what ends in peace go, others stay, whatever their process
// died of, and there are never too many.
#include "observe/flight_folder.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "observe/doctor.hpp"
#include "observe/flight_fixture.hpp"
#include "observe/flight_format.hpp"
#include "platform/clock.hpp"

namespace stretto::observe {
namespace {

namespace files = std::filesystem;
volatile uintptr_t nowhere = 16;  // the compiler knows better than to write there

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
  constexpr int kMost = (16 << 20) / static_cast<int>(kFlightBytes);
  const FlightRecorder oldest = open(999);
  const pid_t pid = fork();
  if (pid == 0) {
    for (int rank = 0; rank < kMost - 1; ++rank) new FlightRecorder(open(rank));
    _exit(count() == kMost ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
  const FlightRecorder next = open(998);
  EXPECT_EQ(count(), static_cast<size_t>(kMost - kMost / 2 + 1));
  EXPECT_TRUE(files::exists(oldest.path())) << "of a process that lives";
  EXPECT_TRUE(files::exists(next.path()));
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
