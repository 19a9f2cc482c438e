#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <utility>
#include <vector>

#include "harness/child.hpp"
#include "platform/own_thread.hpp"

namespace stretto::platform {
namespace {

// A program's handler must run on a thread of the program's, unless it is for what this thread did.
bool takesNoSignal() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGCHLD) == 1 &&
         sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGSEGV) == 0 &&
         sigismember(&blocked, SIGBUS) == 0;
}

TEST(OwnThread, TakesNoneOfTheProgramsSignals) {
  bool begun = false, given = false;
  OwnThread thread;
  ASSERT_TRUE(thread.start([&] { begun = takesNoSignal(); }));
  thread.join();
  OwnThread another([&] { given = takesNoSignal(); });
  another.join();
  EXPECT_TRUE(begun);
  EXPECT_TRUE(given);
  EXPECT_FALSE(takesNoSignal()) << "who starts one goes on as before";
}

TEST(OwnThread, ThatNobodyWaitsForTakesNoneEither) {
  static std::atomic<int> outcome{0};
  ASSERT_TRUE(startAlone([] { outcome = takesNoSignal() ? 1 : 2; }));
  while (outcome == 0) std::this_thread::yield();
  EXPECT_EQ(outcome, 1);
}

TEST(OwnThread, MayBeStartedAgainAndMoved) {
  int runs = 0;
  OwnThread thread;
  thread.join();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(thread.start([&] { ++runs; }));
    EXPECT_TRUE(thread.isHere());
    OwnThread last = std::move(thread);
    EXPECT_FALSE(thread.isHere());
  }
  EXPECT_EQ(runs, 3);
}

// The child starts as many threads as the parent had, which may have the same handles.
TEST(ForkedThread, IsLeftAlone) {
  std::atomic<bool> ends{false};
  std::vector<OwnThread> threads(4);
  for (OwnThread& thread : threads) {
    ASSERT_TRUE(thread.start([&] {
      while (!ends) std::this_thread::yield();
    }));
  }
  const int result = stretto::testing::inChild([&] {
    std::atomic<int> ran{0};
    std::vector<OwnThread> own(threads.size());
    for (OwnThread& thread : own) {
      if (!thread.start([&] { ++ran; })) return 1;
    }
    for (const OwnThread& thread : threads) {
      if (thread.isHere()) return 2;
    }
    threads.clear();  // waits for nobody
    own.clear();
    return ran == 4 ? 0 : 3;
  });
  ends = true;
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace stretto::platform
