// Memory with huge pages, or of a NUMA node: where the machine has them and where it has not. What it refused
// is said, and the memory is there in any case.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/os.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::platform {
namespace {

constexpr size_t kUnevenBytes = (size_t{4} << 20) + 4096;  // not a whole number of huge pages
constexpr int kNoNode = 1000;

std::string wordsOf(const SharedMemory& memory) {
  return memory.refused().empty() ? "all of it was granted" : memory.refused();
}

void expectUsable(const SharedMemory& memory) {
  ASSERT_EQ(memory.size(), kUnevenBytes);
  for (size_t i = 0; i < kUnevenBytes; ++i) ASSERT_EQ(memory.data()[i], std::byte{0}) << i;
  std::memset(memory.data(), 7, kUnevenBytes);
  EXPECT_EQ(memory.data()[kUnevenBytes - 1], std::byte{7});
}

SharedMemory shared(const MemoryWish& wish) {
  auto memory = SharedMemory::create("test", kUnevenBytes, wish);
  EXPECT_TRUE(memory.ok()) << lastError();
  return std::move(memory.value());
}
SharedMemory ofThisProcess(const MemoryWish& wish) {
  auto memory = SharedMemory::createPrivate(kUnevenBytes, wish);
  EXPECT_TRUE(memory.ok()) << lastError();
  return std::move(memory.value());
}

TEST(MemoryWish, NothingIsRefusedOfNone) {
  EXPECT_EQ(shared({}).refused(), "");
  EXPECT_EQ(ofThisProcess({}).refused(), "");
}

TEST(MemoryWish, HugePagesAreHadOrRefusedInWords) {
  for (const bool isShared : {true, false}) {
    const SharedMemory memory = isShared ? shared({.hugePages = true}) : ofThisProcess({.hugePages = true});
    printf("%s memory, huge pages: %s\n", isShared ? "shared" : "private", wordsOf(memory).c_str());
    expectUsable(memory);
    if (memory.refused().empty()) continue;
    EXPECT_NE(memory.refused().find("pages: "), std::string::npos) << "and the reason: " << memory.refused();
  }
}

TEST(MemoryWish, AnotherMappingOfHugePagesIsTheSameMemory) {
  const SharedMemory memory = shared({.hugePages = true});
  const auto other = SharedMemory::open(os::processId(), memory.descriptor(), kUnevenBytes);
  ASSERT_TRUE(other.ok()) << lastError();
  memory.data()[kUnevenBytes - 1] = std::byte{9};
  EXPECT_EQ(other.value().data()[kUnevenBytes - 1], std::byte{9});
  EXPECT_FALSE(SharedMemory::open(os::processId(), memory.descriptor(), kUnevenBytes + 4096).ok());
}

TEST(MemoryWish, ANodeIsHadOrRefusedInWords) {
  for (const bool isShared : {true, false}) {
    const SharedMemory memory = isShared ? shared({.node = 0}) : ofThisProcess({.node = 0});
    printf("%s memory, node 0: %s\n", isShared ? "shared" : "private", wordsOf(memory).c_str());
    expectUsable(memory);
    if (memory.refused().empty()) continue;
    EXPECT_EQ(memory.refused().find("not of NUMA node 0: "), 0u) << memory.refused();
  }
}

TEST(MemoryWish, ANodeThatIsNotThereIsRefusedAndTheMemoryIsThere) {
  for (const int node : {kNoNode, 1 << 20}) {
    const SharedMemory memory = shared({.node = node});
    expectUsable(memory);
    EXPECT_EQ(memory.refused().find("not of NUMA node " + std::to_string(node) + ": "), 0u)
        << memory.refused();
    EXPECT_NE(ofThisProcess({.node = node}).refused(), "");
  }
}

TEST(MemoryWish, WhatWasRefusedGoesWithTheMemory) {
  SharedMemory first = shared({.node = kNoNode});
  const std::string words = first.refused();
  const SharedMemory second = std::move(first);
  EXPECT_EQ(second.refused(), words);
  SharedMemory third;
  third = shared({.hugePages = true, .node = kNoNode});
  EXPECT_NE(third.refused().find("NUMA node"), std::string::npos);
}

}  // namespace
}  // namespace stretto::platform
