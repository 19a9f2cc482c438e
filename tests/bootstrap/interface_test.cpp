// Where ranks meet: over loopback, or over the network interface that NCCL_SOCKET_IFNAME names.
#include <gtest/gtest.h>

#include "base/scoped_variable.hpp"
#include "bootstrap/forked.hpp"
#include "harness/watchdog.hpp"
#include "platform/network_interface.hpp"

namespace stretto::bootstrap {
namespace {

using stretto::testing::ScopedVariable;
using stretto::testing::Watchdog;

// No Service of this process may run: it keeps the address that it began with.
void meetAt(const char* list, const SocketAddress& wanted) {
  const Watchdog watchdog("meeting", 60);
  const ScopedVariable variable("NCCL_SOCKET_IFNAME", list);
  const UniqueId id = testing::newId();
  SocketAddress at = decodeId(id).value().address;
  at.port = 0;
  EXPECT_EQ(at, wanted) << toText(at);
  testing::asThreads(2, [&](int rank) {
    const auto joined = Membership::join(id, rank, 2, 20);
    ASSERT_TRUE(joined.ok()) << lastError();
    EXPECT_TRUE(joined.value()->exchange("hello", {}, 20).ok()) << lastError();
  });
}

class Interface : public ::testing::Test {
 protected:
  // In a child, which has a Service of its own.
  static void inChild(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
};

TEST_F(Interface, LoopbackUnlessSaidOtherwiseInAChild) {
  inChild([] { meetAt("", loopbackAddress()); });
}

TEST_F(Interface, TheNamedOneInAChild) {
  const auto other = interfaceAddress("^lo");
  if (!other.ok()) GTEST_SKIP() << "this host has nothing but loopback";
  inChild([&] { meetAt("^lo", other.value()); });
}

TEST_F(Interface, OneThatIsNotThereInAChild) {
  inChild([] {
    const ScopedVariable variable("NCCL_SOCKET_IFNAME", "=nothing0");
    EXPECT_EQ(Service::createSession().status().code, Code::kInvalidUsage);
  });
}

}  // namespace
}  // namespace stretto::bootstrap
