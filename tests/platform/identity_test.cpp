#include "platform/identity.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/os.hpp"

namespace stretto {
namespace {

class HostIdSet {
 public:
  explicit HostIdSet(const std::string& text) { ::setenv("NCCL_HOSTID", text.c_str(), 1); }
  ~HostIdSet() { ::unsetenv("NCCL_HOSTID"); }
  HostIdSet(const HostIdSet&) = delete;
  HostIdSet& operator=(const HostIdSet&) = delete;
};

ProcessIdentity here() {
  const Result<ProcessIdentity> identity = currentIdentity();
  EXPECT_TRUE(identity.ok()) << lastError();
  return identity.value();
}

TEST(Identity, DescribesThisProcess) {
  const ProcessIdentity me = here();
  char host[65] = "";
  EXPECT_TRUE(os::hostName(host, sizeof host));
  EXPECT_STREQ(me.hostname, host);
  EXPECT_EQ(me.pid, static_cast<uint32_t>(os::processId()));
  EXPECT_NE(me.startTime, 0u);
  EXPECT_EQ(me.startTime, startTimeOf(me.pid));
  EXPECT_NE(me.networkNamespace, 0u);
  EXPECT_TRUE(me == here()) << "it does not change";
  EXPECT_TRUE(sameProcess(me, here()) && sameHost(me, here()) && sameNetwork(me, here()));
}

TEST(Identity, EveryPartCounts) {
  const ProcessIdentity me = here();
  const auto changed = [&](auto member) {
    ProcessIdentity other = me;
    other.*member ^= 1;
    return other;
  };
  EXPECT_FALSE(sameProcess(me, changed(&ProcessIdentity::startTime))) << "a reused pid";
  EXPECT_FALSE(sameProcess(me, changed(&ProcessIdentity::pid)));
  EXPECT_FALSE(sameHost(me, changed(&ProcessIdentity::mountNamespace)));
  EXPECT_FALSE(sameHost(me, changed(&ProcessIdentity::pidNamespace)));
  EXPECT_FALSE(sameNetwork(me, changed(&ProcessIdentity::networkNamespace)));
  EXPECT_TRUE(sameHost(me, changed(&ProcessIdentity::networkNamespace)));
  ProcessIdentity rebooted = me;
  rebooted.bootId[5] ^= 1;
  EXPECT_FALSE(sameHost(me, rebooted));
  EXPECT_FALSE(sameNetwork(me, rebooted));
}

TEST(Identity, TheHostIdVariableReplacesWhatTheKernelSays) {
  const ProcessIdentity plain = here();
  const HostIdSet set("blade-7");
  const ProcessIdentity named = here();
  EXPECT_STREQ(named.hostId, "blade-7");
  EXPECT_FALSE(sameHost(plain, named)) << "one says it, the other does not";
  ProcessIdentity elsewhere = named;
  elsewhere.mountNamespace ^= 1;
  elsewhere.bootId[0] ^= 1;
  EXPECT_TRUE(sameHost(named, elsewhere)) << "the variable decides";
  std::strcpy(elsewhere.hostId, "blade-8");
  EXPECT_FALSE(sameHost(named, elsewhere));
}

TEST(Identity, AHostIdThatIsTooLongIsRefused) {
  const HostIdSet set(std::string(64, 'x'));
  EXPECT_EQ(currentIdentity().status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("NCCL_HOSTID"), std::string::npos) << lastError();
}

}  // namespace
}  // namespace stretto
