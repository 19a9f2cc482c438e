#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/identity.hpp"

namespace stretto {
namespace {

TEST(ForkedChild, IsAnotherProcessOnTheSameHost) {
  const ProcessIdentity me = currentIdentity().value();
  const pid_t child = ::fork();
  if (child == 0) {
    const ProcessIdentity mine = currentIdentity().value();
    ::_exit(sameHost(me, mine) && sameNetwork(me, mine) && !sameProcess(me, mine) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(startTimeOf(static_cast<uint32_t>(child)), 0u) << "it is gone";
}

}  // namespace
}  // namespace stretto
