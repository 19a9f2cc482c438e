// Failures as only POSIX has them: what a killed process leaves among the files, and a process that is
// stopped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/scoped_variable.hpp"
#include "harness/child.hpp"
#include "harness/own_file_system.hpp"
#include "harness/ranks.hpp"
#include "observe/flight_folder.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr const char* kFolders[] = {"/dev/shm", "/tmp"};

std::set<std::string> filesThere() {
  std::set<std::string> names;
  for (const char* folder : kFolders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().string());
  }
  return names;
}

// What three ranks leave that are killed in the middle of an all-reduce, of files for which `isOurs`, given
// their path and the ranks' numbers of processes.
std::string leftByKilledRanks(
    const std::function<bool(const std::string&, const std::vector<pid_t>&)>& isOurs) {
  const auto before = filesThere();
  const Board board(3);
  Processes processes(
      board, connected([](Member& member) {
        float from = 1;
        float to = 0;
        while (ncclAllReduce(&from, &to, 1, ncclFloat32, ncclSum, member.comm, nullptr) == ncclSuccess) {
          ++member.board.word(0);
        }
        ::pause();  // the others are killed first
      }));
  EXPECT_TRUE(eventually(20, [&] { return board.word(0) > 30; }));
  const std::vector<pid_t> pids = {processes.pid(0), processes.pid(1), processes.pid(2)};
  for (int rank = 0; rank < 3; ++rank) processes.kill(rank);
  processes.finish(Processes::kAll);
  std::string left;
  for (const std::string& path : filesThere()) {
    if (path == observe::defaultFlightFolder()) continue;  // flight recorders of the dead are to be read
    if (before.count(path) == 0 && isOurs(path, pids)) left += path + " ";
  }
  return left;
}

// In file systems of the test's own, where nobody else leaves files; where it may have none, of what appears
// in the machine's only what has a rank's number in its name.
TEST(Death, LeavesNoFilesBehind) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  constexpr int kNotAllowed = 77;
  const int status = inChild([] {
    for (const char* folder : kFolders) {
      if (!mountOwn(folder, 65536)) return kNotAllowed;
    }
    EXPECT_EQ(leftByKilledRanks([](const std::string&, const auto&) { return true; }), "");
    fflush(nullptr);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  if (status != kNotAllowed) {
    EXPECT_EQ(status, 0);
    return;
  }
  const auto names = [](const std::string& path, const std::vector<pid_t>& pids) {
    return path.find("stretto") != path.npos && std::any_of(pids.begin(), pids.end(), [&](pid_t pid) {
             return path.find(std::to_string(pid)) != path.npos;
           });
  };
  EXPECT_EQ(leftByKilledRanks(names), "");
}

// The process that made the id is late, and has not answered the rank yet that aborts.
TEST(Abort, OfARankThatNobodyKnowsYetIsToldToTheOthers) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  enum { kMade, kStopped, kAborts, kGoesOn };
  const ScopedVariable timeout("STRETTO_INIT_TIMEOUT", "6");
  const auto awaits = [](const Member& member, int word) {
    member.check(eventually(20, [&] { return member.board.word(word) != 0; }), "nobody said so");
  };
  const Board board(2);
  Processes processes(board, [&](Member& member) {
    const Canary canary;
    ncclUniqueId id;
    member.board.shareId(member.rank, &id);
    if (member.rank == 1) {
      awaits(member, kStopped);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      member.expect(ncclCommInitRankConfig(&member.comm, 2, id, 1, &config), "init", ncclInProgress);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const double start = secondsNow();
      member.board.word(kAborts) = 1;
      member.expect(ncclCommAbort(member.comm), "abort");
      if (secondsNow() - start > canary.limit(kNoticed)) member.complain("the abort took long");
    } else {
      member.board.word(kMade) = 1;
      awaits(member, kGoesOn);
      const double start = secondsNow();
      member.expect(ncclCommInitRank(&member.comm, 2, id, 0), "init", ncclRemoteError);
      member.expectError("the error", {"rank 1", "ncclCommAbort"});
      if (secondsNow() - start > canary.limit(kNoticed)) member.complain("told late");
    }
    member.board.meet();
  });
  ASSERT_TRUE(eventually(20, [&] { return board.word(kMade) != 0; }));
  ::kill(processes.pid(0), SIGSTOP);
  board.word(kStopped) = 1;
  EXPECT_TRUE(eventually(20, [&] { return board.word(kAborts) != 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(processes.pid(0), SIGCONT);
  board.word(kGoesOn) = 1;
  processes.finish();
}

}  // namespace
}  // namespace stretto
