// A process that dies while the kernel passes a fence for it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "platform/fence.hpp"

namespace stretto::platform {
namespace {

// Linux 5.9 and later; the range is empty, which is an error of its own.
bool canUnshareDescriptors() {
#ifdef SYS_close_range
  return ::syscall(SYS_close_range, 1U, 0U, 1U << 1) == 0 || errno == EINVAL;
#else
  return false;
#endif
}

// Whether the other end of a child's socket was closed while the child was still there.
bool closesBeforeItEnds() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    const HeavyFence fence;
    ::usleep(1000);  // until its thread waits for the kernel
    ::_exit(0);
  }
  ::close(ends[1]);
  char nothing = 0;
  EXPECT_EQ(::read(ends[0], &nothing, 1), 0);
  ::close(ends[0]);
  // A process that closes as the last thing it does is gone by then.
  ::usleep(2000);
  const bool isStillThere = ::waitpid(child, nullptr, WNOHANG) == 0;
  if (isStillThere) ::waitpid(child, nullptr, 0);
  return isStillThere;
}

// What it had open tells its peers that it has died. The kernel lets no thread end that waits for a fence.
TEST(FencedProcess, ThatDiesKeepsNothingOpenUntilTheFenceIsPassed) {
  if (!hasHeavyFence()) GTEST_SKIP() << "this kernel or sandbox offers no membarrier";
  if (!canUnshareDescriptors()) GTEST_SKIP() << "this kernel lets no thread have descriptors of its own";
  bool closes = false;
  for (int attempt = 0; attempt < 100 && !closes; ++attempt) closes = closesBeforeItEnds();
  EXPECT_TRUE(closes);
}

}  // namespace
}  // namespace stretto::platform
