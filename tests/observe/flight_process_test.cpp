// What is told of a process from outside while it ends.
#include "observe/flight_process.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace stretto::observe {
namespace {

// The kernel fails a read of /proc/PID/stat whose process has ended since it was opened. A communicator that
// is made looks at the recorders of all processes of the host, so this must not end the making.
TEST(Liveness, OfAProcessThatEndsWhileItIsLookedAtIsToldAllTheSame) {
  std::atomic<pid_t> child{0};
  std::atomic<bool> over{false};
  std::atomic<int> looks{0}, failures{0};
  std::thread looker([&] {
    while (!over) {
      const pid_t pid = child;
      if (pid == 0) continue;
      try {
        (void)livenessOf(pid, 1);
        ++looks;
      } catch (const std::exception&) {
        ++failures;
      }
    }
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < until) {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    ASSERT_GT(pid, 0);
    child = pid;
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  }
  over = true;
  looker.join();
  EXPECT_GT(looks, 100);
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace stretto::observe
