// Ranks as forked processes. tests/windows/processes.cpp does the same there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "harness/ranks.hpp"

namespace stretto::testing {
bool isRankRunAgain() {
  return false;
}

Processes::Processes(const Board& board, const Body& body, double seconds, int each)
    : board_(board), each_(each) {
  // The library's idle background thread may still be there, for what was aborted before; it does not fork.
  EXPECT_TRUE(eventually(10, [] { return threadsNow() <= 2; })) << threadsNow() << " threads before a fork";
  fflush(nullptr);
  // Ranks that outnumber the GPUs share them, with a kernel of each at a time, so that they have many blocks.
  // Others run as users' ranks do, whose kernels overlap and have all of a GPU.
  const bool share = testsOnDevice() && board.ranks() > devicesThere();
  for (int rank = 0; rank < board.ranks(); rank += each) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(static_cast<unsigned>(seconds));
      if (share) setenv("STRETTO_SHARED_DEVICE", "2", 0);
      const int host = each > 1 ? rank / each : rank % testedHosts();
      if (testedHosts() > 1 || (each > 1 && each < board.ranks()))
        setenv("NCCL_HOSTID", ("test-host-" + std::to_string(host)).c_str(), 1);
      if (each == 1) runRank(board, body, rank);
      if (each > 1) runThreads(board, body, rank, std::min(each, board.ranks() - rank));
      ::_exit(0);
    }
    pids_.push_back(pid);
  }
}

Processes::~Processes() {
  finish();
}

void Processes::kill(int rank) const {
  ::kill(pid(rank), SIGKILL);
}

void Processes::finish(int killed) {
  for (size_t i = 0; i < pids_.size(); ++i) {
    const int rank = static_cast<int>(i) * each_;
    int status = 0;
    ::waitpid(pids_[i], &status, 0);
    if (killed == kAll || (killed >= rank && killed < rank + each_)) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "rank " << rank << ": " << status;
    } else if (WIFSIGNALED(status)) {
      ADD_FAILURE() << "rank " << rank << " ended by signal " << WTERMSIG(status)
                    << (WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    } else {
      EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank;
    }
  }
  if (!pids_.empty()) addFailures(board_);
  pids_.clear();
}

}  // namespace stretto::testing
