#include <gtest/gtest.h>

#include "topology/made_up_host.hpp"
#include "topology/probe.hpp"

namespace stretto::topology {
namespace {

using platform::nvml::kSwitch;
using stretto::testing::MadeUpHost;

TEST(Devices, AreWhatTheDriverSaysAndTheKernel) {
  const MadeUpHost host;
  host.file("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1");
  host.file("sys/bus/pci/devices/0000:1c:00.0/numa_node", "-1");
  const auto devices = probeDevices(host.sources({0}), FAKE_NVML);
  ASSERT_EQ(devices.size(), 3u) << "the fourth does not answer";
  EXPECT_EQ(devices[0], (Device{{"Example GPU", "GPU-0", "0000:1b:00.0", 1000, {{kSwitch, 18, 26562}}}, 1}));
  EXPECT_EQ(devices[1], (Device{{"Example GPU", "GPU-1", "0000:1c:00.0", 1000, {{kSwitch, 18, 26562}}}, -1}));
  EXPECT_EQ(devices[2],
            (Device{{"Example GPU", "GPU-2", "0000:1d:00.0", 1000, {{"0000:1c:00.0", 2, 0}}}, -1}));
}

TEST(Devices, OfAnOldDriverHaveLinksToWhateverHasABusId) {
  const auto devices = probeDevices({}, FAKE_NVML_OLD);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].gpu.links, (std::vector<platform::nvml::NvlinksTo>{{"0000:22:00.0", 18, 0}}));
}

TEST(Devices, AreNoneWithoutALibraryOrADriver) {
  std::string why;
  EXPECT_TRUE(platform::nvml::devices(&why, "libno-such-nvml.so.1").empty());
  EXPECT_NE(why.find("libno-such-nvml"), std::string::npos) << why;
  EXPECT_TRUE(platform::nvml::devices(&why, FAKE_NVML_REFUSES).empty());
  EXPECT_NE(why.find("Driver Not Loaded"), std::string::npos) << why;
  EXPECT_TRUE(platform::nvml::devices(&why, "libm.so.6").empty());
  EXPECT_NE(why.find("lacks"), std::string::npos) << why;
}

TEST(Devices, AreLinkedDirectlyOrThroughSwitches) {
  const auto devices = probeDevices({}, FAKE_NVML);
  const char *first = "0000:1b:00.0", *second = "0000:1c:00.0", *third = "0000:1d:00.0";
  EXPECT_EQ(nvlinkBetween(devices, first, second), Nvlink::kYes);
  EXPECT_EQ(nvlinkBetween(devices, second, third), Nvlink::kYes);
  EXPECT_EQ(nvlinkBetween(devices, third, second), Nvlink::kYes);
  EXPECT_EQ(nvlinkBetween(devices, first, third), Nvlink::kNo);
  EXPECT_EQ(nvlinkBetween(devices, first, "0000:1e:00.0"), Nvlink::kUnknown);
  EXPECT_EQ(nvlinkBetween({}, first, second), Nvlink::kUnknown);
}

TEST(Devices, SurviveJson) {
  Facts facts;
  facts.usable = {0};
  facts.nodes = {{0, {0}, 1}};
  facts.devices = probeDevices({}, FAKE_NVML);
  const auto read = fromJson(toJson(facts));
  ASSERT_TRUE(read.ok()) << lastError();
  EXPECT_EQ(read.value(), facts);
}

}  // namespace
}  // namespace stretto::topology
