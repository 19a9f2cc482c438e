// That the kernel knows what was wished: it says so in /proc/self/smaps and numa_maps.
#include <gtest/gtest.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "platform/shared_memory.hpp"

namespace stretto::platform {
namespace {

constexpr size_t kHugeBytes = size_t{4} << 20;

// The line of `file` that begins with `name`, in the part about the mapping of that address; numa_maps has
// one line for each.
std::string lineAbout(const char* file, const void* address, const char* name) {
  std::ifstream lines(file);
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool isInside = false;
  for (std::string line; std::getline(lines, line);) {
    uintptr_t begin = 0, end = 0;
    const int numbers = sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end);
    if (numbers == 2) isInside = begin <= wanted && wanted < end;
    if (*name == 0 && numbers == 1 && begin == wanted) return line;
    if (isInside && *name != 0 && line.starts_with(name)) return line;
  }
  return {};
}

SharedMemory made(bool isShared, const MemoryWish& wish) {
  auto memory = isShared ? SharedMemory::create("test", kHugeBytes, wish)
                         : SharedMemory::createPrivate(kHugeBytes, wish);
  EXPECT_TRUE(memory.ok()) << lastError();
  memory.value().data()[0] = std::byte{1};
  return std::move(memory.value());
}

TEST(MemoryWishOfLinux, TheKernelIsAskedForHugePages) {
  for (const bool isShared : {true, false}) {
    const SharedMemory plain = made(isShared, {});
    const SharedMemory huge = made(isShared, {.hugePages = true});
    const std::string flags = lineAbout("/proc/self/smaps", huge.data(), "VmFlags:");
    if (flags.empty()) GTEST_SKIP() << "this kernel does not show a mapping's flags";
    EXPECT_EQ(flags.find(" hg") != std::string::npos, huge.refused().empty()) << flags << huge.refused();
    EXPECT_EQ(lineAbout("/proc/self/smaps", plain.data(), "VmFlags:").find(" hg"), std::string::npos);
  }
}

TEST(MemoryWishOfLinux, TheKernelPrefersTheNode) {
  for (const bool isShared : {true, false}) {
    const SharedMemory memory = made(isShared, {.node = 0});
    if (!memory.refused().empty()) {
      // A sandbox may refuse the call, and a kernel may be without it; that node 0 is no node would be a
      // mistake of ours.
      ASSERT_TRUE(memory.refused().ends_with(strerror(EPERM)) || memory.refused().ends_with(strerror(ENOSYS)))
          << memory.refused();
      GTEST_SKIP() << memory.refused();
    }
    const std::string line = lineAbout("/proc/self/numa_maps", memory.data(), "");
    if (line.empty()) GTEST_SKIP() << "this kernel does not show the nodes of mappings";
    EXPECT_NE(line.find("prefer"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace stretto::platform
