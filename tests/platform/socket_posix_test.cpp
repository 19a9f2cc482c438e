// Sockets as descriptors of a POSIX process: what a program that it executes and a child that it forks get.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "harness/watchdog.hpp"
#include "platform/connected_pair.hpp"

namespace stretto {
namespace {

using namespace testing;

bool isOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(Socket, DescriptorsCloseOnExecAndWithTheirOwner) {
  Pair pair = connected();
  const int fd = pair.client.get();
  EXPECT_TRUE((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  FileDescriptor moved = std::move(pair.client);
  EXPECT_FALSE(pair.client.valid());
  EXPECT_TRUE(isOpen(fd));
  moved = FileDescriptor();
  EXPECT_FALSE(isOpen(fd));
}

TEST(ForkedChild, HasNoCopiesOfSocketsAndClosesNoStrangers) {
  const Watchdog watchdog("fork", 20);
  Pair pair = connected();
  const int numbers[] = {pair.client.get(), pair.server.get()};
  const pid_t child = ::fork();
  if (child == 0) {
    if (isOpen(numbers[0]) || isOpen(numbers[1])) ::_exit(1);
    while (!isOpen(numbers[0]) || !isOpen(numbers[1])) {
      if (::open("/dev/null", O_RDONLY) < 0) ::_exit(2);  // takes the lowest free number
    }
    if (pair.client.valid() || pair.server.get() >= 0) ::_exit(4);
    pair.client.reset();
    pair.server.reset();
    ::_exit(isOpen(numbers[0]) && isOpen(numbers[1]) ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(sendText(pair.client, "alive").outcome, IoOutcome::kSome);
}

}  // namespace
}  // namespace stretto
