// The threads that look after GPUs and the end of the process.
#include "communicator/device/watch.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "harness/ranks.hpp"

namespace stretto::communicator {
namespace {

constexpr int kDevice = 7;  // that nobody has
std::atomic<int> looks{0};

// Registered before the watch, as CUDA is: runs after its end.
void endOfCuda() {
  const int before = looks;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::_exit(looks == before ? 0 : 1);
}

void exitWhileWatched() {
  std::atexit(endOfCuda);
  watchOver(0, kDevice, [] { return ++looks > 0; });
  (void)testing::eventually(20, [] { return looks > 0; });
  std::exit(2);
}

// A forked child has no such thread, and waits for none at its exit.
void exitInAChild() {
  watchOver(0, kDevice, [] { return ++looks > 0; });
  (void)testing::eventually(20, [] { return looks > 0; });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a wait for a thread that the child has not would last for ever
    std::exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ::_exit(status == 0 ? 0 : 1);
}

TEST(DeviceWatch, LooksAtNothingOnceTheProcessExits) {
  EXPECT_EXIT(exitWhileWatched(), ::testing::ExitedWithCode(0), "");
}

TEST(DeviceWatch, IsNotWaitedForByAForkedChild) {
  EXPECT_EXIT(exitInAChild(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stretto::communicator
