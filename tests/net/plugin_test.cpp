// Net plugins: what we say of those that fail, and what NCCL's variables choose.
#include "net/plugin/plugin.hpp"

#include <gtest/gtest.h>

#include "base/scoped_variable.hpp"
#include "harness/captured_log.hpp"
#include "harness/watchdog.hpp"
#include "net/drive.hpp"
#include "net/open.hpp"

namespace stretto::net::testing {
namespace {

using stretto::testing::CapturedWarnings;
using stretto::testing::ScopedVariable;

std::string whyNot(const std::string& file, const std::string& wanted = "", double seconds = 30) {
  std::string why;
  EXPECT_EQ(plugin::open(file, wanted, seconds, why), nullptr) << file;
  return why;
}

TEST(NetPlugin, OneThatFailsIsNotUsed) {
  EXPECT_NE(whyNot("/there/is/no/such.so").find("such.so"), std::string::npos);
  EXPECT_NE(whyNot("nosuchplugin").find("libnccl-net-nosuchplugin.so"), std::string::npos);
  EXPECT_EQ(whyNot(FAKE_NET_EMPTY), "it exports none of ncclNetPlugin_v6 to ncclNetPlugin_v12");
  EXPECT_EQ(whyNot(FAKE_NET_FAILS), "its init returned 2");
  EXPECT_EQ(whyNot(FAKE_NET_NONE), "it has no device here");
  EXPECT_EQ(whyNot(FAKE_NET_MANY), "it says that it has 1000000 devices");
  EXPECT_EQ(whyNot(FAKE_NET_NONSENSE), "it speaks of a device that takes no receive");
  EXPECT_EQ(whyNot(FAKE_NET_HOLES), "its table lacks functions");
  EXPECT_EQ(whyNot(FAKE_NET, "other"), "it is Made up, and other is wanted");
}

TEST(NetPlugin, OneWhoseInitHangsIsLeftAlone) {
  const stretto::testing::Watchdog watchdog("a plugin that hangs", kPatience);
  EXPECT_EQ(whyNot(FAKE_NET_HANGS, "", 0.2), "its init has not returned within 0.2 s");
}

TEST(NetPlugin, NonsenseIsAnError) {
  std::string why;
  const auto net = plugin::open(FAKE_NET, "made UP", 30, why);
  ASSERT_NE(net, nullptr) << why;
  EXPECT_STREQ(net->name(), "Made up");
  EXPECT_EQ(net->properties(0).value().mostGrouped, kMostGrouped);
  EXPECT_FALSE(net->properties(1).ok());
  EXPECT_EQ(net->listen(0).status().code, Code::kInternal);
  EXPECT_NE(lastError().find("success and no listener"), std::string::npos);
  auto connecting = net->connect(0, Handle{});
  ASSERT_TRUE(connecting.ok());
  std::unique_ptr<Sender> sender;
  EXPECT_EQ(connecting.value()->poll(sender).code, Code::kInternal);
  EXPECT_NE(lastError().find("net plugin Made up: its connect returned 77"), std::string::npos)
      << lastError();
}

TEST(NetPlugin, TheFirstOfAListThatWorks) {
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedVariable list("NCCL_NET_PLUGIN", FAKE_NET_FAILS "," FAKE_NET "," STRETTO_NET);
  const auto first = open();
  ASSERT_TRUE(first.ok());
  EXPECT_STREQ(first.value()->name(), "Made up");
  const ScopedVariable wanted("NCCL_NET", "stretto");
  const auto named = open();
  ASSERT_TRUE(named.ok());
  EXPECT_STREQ(named.value()->name(), "Stretto");
}

TEST(NetPlugin, WithoutOneItIsTcp) {
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "lo");
  {
    const ScopedVariable none("NCCL_NET_PLUGIN", "none");
    EXPECT_STREQ(open().value()->name(), "tcp");
  }
  const ScopedVariable broken("NCCL_NET_PLUGIN", FAKE_NET_FAILS);
  CapturedWarnings warnings;
  EXPECT_STREQ(open().value()->name(), "tcp");
  EXPECT_NE(warnings.take().find("its init returned 2"), std::string::npos);
  const ScopedVariable wanted("NCCL_NET", "IB");
  EXPECT_EQ(open().status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("NCCL_NET=IB"), std::string::npos);
}

TEST(NetPlugin, AChoiceOfInterfacesThatChoosesNoneIsAnError) {
  const ScopedVariable none("NCCL_NET_PLUGIN", "none");
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "=nosuchinterface");
  EXPECT_EQ(open().status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("lo"), std::string::npos) << lastError();
}

}  // namespace
}  // namespace stretto::net::testing
