// Memory of other processes, mapped: how long it stays. The other process is this one, which reaches its own
// segments through /proc as it would a peer's.
#include "memory/imports.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "harness/child.hpp"
#include "memory/user_memory.hpp"

namespace stretto::memory {
namespace {

constexpr size_t kBytes = 100000;

// One segment, told to others by `teller`.
struct Segment {
  explicit Segment(const void* teller, size_t bytes = kBytes) {
    const auto memory = allocate(bytes);
    EXPECT_TRUE(memory.ok()) << lastError();
    data = static_cast<std::byte*>(memory.value());
    what = describe(data, bytes, teller);
    what.address = reinterpret_cast<uint64_t>(data);
  }
  ~Segment() { free(); }
  void free() {
    EXPECT_TRUE(release(data).ok()) << lastError();
    data = nullptr;
  }
  std::byte* data = nullptr;
  Shareable what;
};

class ImportsTest : public ::testing::Test {
 protected:
  const std::byte* map(const Segment& segment) {
    const auto mapped = imports_.map(1, getpid(), segment.what);
    return mapped.ok() ? mapped.value() : nullptr;
  }
  const std::byte* use(const Segment& segment) {
    const std::byte* const at = map(segment);
    imports_.endOperation();
    return at;
  }
  Imports imports_;
};

TEST_F(ImportsTest, AreTheSameMemoryAndMappedOnce) {
  Segment one(this);
  one.data[77] = std::byte{5};
  const std::byte* const at = map(one);
  ASSERT_NE(at, nullptr) << lastError();
  EXPECT_NE(at, one.data);
  EXPECT_EQ(at[77], std::byte{5});
  EXPECT_EQ(map(one), at);
  imports_.endOperation();
  EXPECT_EQ(use(one), at);
  EXPECT_EQ(imports_.mappedBytes(), one.what.bytes);
}

TEST_F(ImportsTest, EndWithWhatTheyMap) {
  Segment one(this), two(this);
  use(one);
  const std::byte* const kept = use(two);
  one.free();
  imports_.sweep();
  EXPECT_EQ(imports_.mappedBytes(), two.what.bytes);
  EXPECT_EQ(use(two), kept);
  // Also without having been told: at the next operation.
  Segment three(this);
  two.free();
  use(three);
  EXPECT_EQ(imports_.mappedBytes(), three.what.bytes);
}

// A sweep on another thread neither waits for the operation nor takes away what it reads.
TEST_F(ImportsTest, StayUntilTheOperationEnds) {
  Segment one(this);
  one.data[0] = std::byte{9};
  const std::byte* const at = map(one);
  one.free();
  std::thread([&] { imports_.sweep(); }).join();
  EXPECT_EQ(at[0], std::byte{9});
  EXPECT_GT(imports_.mappedBytes(), 0u);
  imports_.endOperation();
  EXPECT_EQ(imports_.mappedBytes(), 0u);
}

TEST_F(ImportsTest, SweptWhileOperationsRunAreNotLost) {
  std::atomic<bool> done{false};
  std::thread sweeper([&] {
    while (!done) imports_.sweep();
  });
  for (int round = 0; round < 300; ++round) {
    Segment one(this);
    one.data[1] = std::byte{3};
    const std::byte* const at = map(one);
    one.free();
    EXPECT_EQ(at[1], std::byte{3});
    imports_.endOperation();
  }
  done = true;
  sweeper.join();
  imports_.sweep();
  EXPECT_EQ(imports_.mappedBytes(), 0u);
}

// Nothing is touched, so these take no memory.
TEST_F(ImportsTest, AreBoundedInBytesByTheLeastRecentlyUsed) {
  constexpr size_t kThird = Imports::kMostBytes / 3 - 8192;
  Segment one(nullptr, kThird), two(nullptr, kThird), three(nullptr, kThird), four(nullptr, kThird);
  const std::byte* const first = use(one);
  use(two);
  use(three);
  EXPECT_EQ(use(one), first);
  use(four);
  EXPECT_EQ(imports_.mappedBytes(), 3 * one.what.bytes);
  EXPECT_EQ(use(one), first) << "used since the others were, but dropped";
  EXPECT_LE(imports_.mappedBytes(), Imports::kMostBytes);
  // What one operation uses is mapped whatever there is of it.
  for (const Segment* segment : {&one, &two, &three, &four}) ASSERT_NE(map(*segment), nullptr) << lastError();
  EXPECT_EQ(imports_.mappedBytes(), 4 * one.what.bytes);
  imports_.endOperation();
  Segment small(nullptr);
  use(small);
  EXPECT_LE(imports_.mappedBytes(), Imports::kMostBytes);
}

// A rank that was lost, not a system that refuses.
TEST_F(ImportsTest, OfAProcessThatHasEndedAreRefusedAsSuch) {
  Segment one(this);
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  EXPECT_EQ(imports_.map(1, ended, one.what).status().code, Code::kRemote) << lastError();
  one.what.descriptor = 1 << 20;
  EXPECT_EQ(use(one), nullptr) << "no descriptor of a process that lives";
}

TEST_F(ImportsTest, OutsideTheirSegmentAreRefused) {
  Segment one(this);
  Segment other(this);
  for (const uint64_t address : {one.what.base - 1, one.what.base + one.what.bytes - 4095, UINT64_MAX}) {
    other.what = one.what;
    other.what.address = address;
    EXPECT_EQ(use(other), nullptr) << address - one.what.base;
  }
  // Users have all but the mark's page, whatever they asked for.
  EXPECT_NE(describe(one.data, one.what.bytes - 4096).id, 0u);
  EXPECT_EQ(describe(one.data, one.what.bytes - 4095).id, 0u);
}

TEST(Release, TellsThoseWhoHaveDescribedTheMemory) {
  int first = 0, second = 0;
  onRelease(&first, [&] { ++first; });
  onRelease(&second, [&] { ++second; });
  Segment alone(nullptr), one(&first), both(&first);
  (void)describe(both.data, 8, &second);
  (void)describe(both.data, 8, &second);
  alone.free();
  EXPECT_EQ(first + second, 0);
  one.free();
  EXPECT_EQ(first, 1);
  both.free();
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 1);
  Segment late(&first);
  dropOnRelease(&first);
  dropOnRelease(&second);
  late.free();
  EXPECT_EQ(first, 2);
}

// Its communicator is destroyed before the memory is freed: peers find the mark when they sweep next.
TEST_F(ImportsTest, EndWithMemoryWhoseTellerHasGone) {
  int told = 0;
  onRelease(this, [&] { ++told; });
  Segment one(this);
  use(one);
  dropOnRelease(this);
  one.free();
  imports_.sweep();
  EXPECT_EQ(imports_.mappedBytes(), 0u);
  EXPECT_EQ(told, 0);
}

// The child's copy is the parent's memory too: peers keep it.
class ForkedImports : public ImportsTest {};

TEST_F(ForkedImports, StayWhenAChildFreesItsCopy) {
  int told = 0;
  onRelease(this, [&] { ++told; });
  Segment one(this);
  const std::byte* const at = use(one);
  EXPECT_EQ(stretto::testing::inChild([&] {
              one.free();
              return told;
            }),
            0);
  imports_.sweep();
  EXPECT_EQ(use(one), at);
  EXPECT_EQ(imports_.mappedBytes(), one.what.bytes);
  dropOnRelease(this);
}

}  // namespace
}  // namespace stretto::memory
