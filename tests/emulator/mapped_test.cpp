// Mapped memory (platform/cuda/mapped.cpp) on emulated devices, where pieces are files: what is put together,
// shared between processes and taken apart, and that nothing is left of it.
#include "platform/cuda/mapped.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/scoped_variable.hpp"
#include "emulator/machine.hpp"
#include "emulator/vmm.hpp"
#include "harness/child.hpp"
#include "harness/cuda/expandable.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "links/ipc/link.hpp"
#include "memory/user_memory.hpp"
#include "platform/cuda/device.hpp"
#include "platform/descriptors.hpp"

namespace stretto::platform::cuda {
namespace {

using testing::Expandable;
using testing::inChild;

// Nothing of a test outlives it.
class Mapped : public ::testing::Test {
 protected:
  void SetUp() override {
    (void)mappedFirst();
    testing::Expandable(0, {1});
    pieces_ = emulator::vmmPieces();
    reservations_ = emulator::vmmReservations();
    descriptors_ = testing::descriptorsNow();
  }
  void TearDown() override {
    EXPECT_EQ(emulator::vmmPieces(), pieces_);
    EXPECT_EQ(emulator::vmmReservations(), reservations_);
    EXPECT_EQ(testing::descriptorsNow(), descriptors_);
  }

 private:
  // What is opened once in a process, is now.
  static bool mappedFirst() { return deviceCount() > 0 && isMapped(0, nullptr); }

  const testing::Watchdog watchdog_{"mapped memory", 60};
  emulator::Machine machine_{{}};
  size_t pieces_ = 0;
  size_t reservations_ = 0;
  size_t descriptors_ = 0;
};

TEST_F(Mapped, MemoryIsZeroedAndForAllDevices) {
  EXPECT_EQ(whyNotMapped(0), "");
  const auto memory = allocateMapped(1, 3'000'000);
  ASSERT_TRUE(memory.ok()) << lastError();
  const std::byte* const data = memory.value().data();
  EXPECT_GE(memory.value().bytes(), 3'000'000u);
  EXPECT_TRUE(std::all_of(data, data + memory.value().bytes(), [](std::byte b) { return b == std::byte{}; }));
  EXPECT_TRUE(isMapped(1, data + 2'999'999));
  for (int device = 0; device < deviceCount(); ++device) EXPECT_TRUE(mayUse(device, data));
  const auto place = placeOf(data);
  EXPECT_EQ(place.value().place, Place::kDevice);
  EXPECT_EQ(place.value().device, 1);
}

TEST_F(Mapped, OrdinaryMemoryIsNot) {
  const auto memory = allocate(0, 4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_FALSE(isMapped(0, memory.value()));
  EXPECT_TRUE(mayUse(1, memory.value()));
  EXPECT_FALSE(Pieces::behind(0, memory.value(), 4096).ok());
  release(0, memory.value());
}

// As a window in an expandable segment: it begins amid the first piece and ends amid the last.
TEST_F(Mapped, PiecesAreMappedAgainInTheirOrder) {
  const Expandable segment(0, {1, 2, 1});
  const size_t unit = segment.unit();
  char* const begin = segment.data() + unit - 100;
  const size_t bytes = 2 * unit + 200;
  auto pieces = Pieces::behind(0, begin, bytes);
  ASSERT_TRUE(pieces.ok()) << lastError();
  EXPECT_EQ(pieces.value().count(), 3u);
  EXPECT_EQ(pieces.value().offset(), unit - 100);
  EXPECT_EQ(pieces.value().bytes(), 4 * unit);
  EXPECT_FALSE(mayUse(1, begin)) << "its owner mapped it for its own device";
  const auto again = memory::DeviceImport::map(1, pieces.value(), pieces.value().offset(), bytes);
  ASSERT_TRUE(again.ok()) << lastError();
  EXPECT_TRUE(mayUse(1, again.value().data()));
  EXPECT_TRUE(again.value().isMapped());
  for (size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(i * 7 + i / 251);
  EXPECT_EQ(std::memcmp(again.value().data(), begin, bytes), 0);
}

TEST_F(Mapped, OnlyThePiecesOfTheRangeAreHeld) {
  const Expandable segment(0, {1, 1, 1});
  EXPECT_EQ(Pieces::behind(0, segment.data() + segment.unit(), segment.unit()).value().count(), 1u);
  EXPECT_EQ(Pieces::behind(0, segment.data() + segment.unit() - 1, 2).value().count(), 2u);
  EXPECT_EQ(Pieces::behind(0, segment.data(), segment.bytes()).value().count(), 3u);
}

// A peer's mapping keeps what its owner frees.
TEST_F(Mapped, MemoryOutlivesItsOwnersMapping) {
  Expandable segment(0, {1});
  std::strcpy(segment.data(), "still here");
  memory::DeviceImport peer;
  {
    auto pieces = Pieces::behind(0, segment.data(), segment.bytes());
    auto mapped = memory::DeviceImport::map(1, pieces.value(), 0, segment.bytes());
    ASSERT_TRUE(mapped.ok()) << lastError();
    peer = std::move(mapped.value());
  }
  segment.unmap();
  EXPECT_STREQ(reinterpret_cast<const char*>(peer.data()), "still here");
}

TEST_F(Mapped, WhatCannotBeSharedIsSaid) {
  const Expandable own(0, {1, 1}, false);
  EXPECT_FALSE(Pieces::behind(0, own.data(), own.bytes()).ok());
  EXPECT_NE(lastError().find("POSIX_FILE_DESCRIPTOR"), std::string::npos) << lastError();
  const Expandable other(1, {1});
  EXPECT_FALSE(Pieces::behind(0, other.data(), other.bytes()).ok());
  EXPECT_NE(lastError().find("no memory of GPU 0"), std::string::npos) << lastError();
  const Expandable brief(0, {1});
  EXPECT_FALSE(Pieces::behind(0, brief.data(), brief.bytes() + 1).ok());
  EXPECT_NE(lastError().find("as a whole"), std::string::npos) << lastError();
  const auto pieces = Pieces::behind(0, brief.data(), brief.bytes());
  EXPECT_FALSE(memory::DeviceImport::map(1, pieces.value(), 8, brief.bytes()).ok());
}

TEST_F(Mapped, AMappingThatFailsHalfwayLeavesNothing) {
  const Expandable segment(0, {1});
  auto pieces = Pieces::behind(0, segment.data(), segment.bytes());
  ASSERT_TRUE(pieces.ok());
  // More is said to be there than there is.
  const auto descriptor = pieces.value().share(0);
  ASSERT_TRUE(descriptor.ok()) << lastError();
  ASSERT_TRUE(pieces.value().append(0, descriptor.value(), 2 * segment.unit()).ok()) << lastError();
  const int device = 0;
  EXPECT_FALSE(Mapping::make({&device, 1}, pieces.value()).ok());
  const FileDescriptor none;
  EXPECT_FALSE(pieces.value().append(0, none, segment.unit()).ok());
}

// The way of a window of a peer in another process: as links/ipc opens it.
TEST_F(Mapped, ProcessesShareMemoryInPieces) {
  const Expandable segment(0, {1, 1, 3});
  const size_t begin = segment.unit() / 2;
  const size_t bytes = segment.bytes() - segment.unit();
  links::DeviceEndpoint theirs;
  const auto held =
      std::make_shared<Pieces>(std::move(Pieces::behind(0, segment.data() + begin, bytes).value()));
  const auto open = [held](size_t index) -> Result<NumberedDescriptor> {
    auto descriptor = held->share(index);
    if (!descriptor.ok()) return descriptor.status();
    return NumberedDescriptor{std::move(descriptor.value()), held->bytesOf(index)};
  };
  const auto source = DescriptorSource::create(held->count(), open);
  ASSERT_TRUE(source.ok()) << lastError();
  theirs.rank = theirs.device = 0;
  theirs.facts = factsOf(0).value();
  theirs.mapped = 1;
  theirs.offset = held->offset();
  theirs.windowBytes = bytes;
  theirs.pieces = source.value()->address();
  std::strcpy(segment.data() + begin, "from the parent");
  const int status = inChild([&] {
    links::DeviceEndpoint mine;
    mine.rank = mine.device = 1;
    mine.facts = factsOf(1).value();
    const size_t pieces = emulator::vmmPieces();
    const size_t descriptors = testing::descriptorsNow();
    {
      const auto link = links::ipc::open(mine, theirs, 10);
      if (!link.ok()) return 1;
      std::byte* const window = link.value().window;
      if (std::strcmp(reinterpret_cast<const char*>(window), "from the parent") != 0) return 2;
      for (size_t i = 0; i < bytes; ++i) window[i] = static_cast<std::byte>(i * 7 + i / 251);
      if (testing::descriptorsNow() != descriptors + 3) return 3;  // those of the emulated pieces
    }
    if (emulator::vmmPieces() != pieces || testing::descriptorsNow() != descriptors) return 4;
    theirs.windowBytes = segment.bytes();
    return links::ipc::open(mine, theirs, 10).ok() ? 5 : 0;  // what is not there is not believed
  });
  EXPECT_EQ(status, 0);
  for (size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(segment.data()[begin + i], static_cast<char>(i * 7 + i / 251)) << i;
  }
}

TEST_F(Mapped, UsersGetItWhereItIs) {
  for (const char* const there : {"1", "0"}) {
    const testing::ScopedVariable vmm("STRETTO_EMULATED_VMM", there);
    EXPECT_EQ(whyNotMapped(0).empty(), *there == '1');
    const auto memory = memory::allocateOn(0, 100);
    ASSERT_TRUE(memory.ok()) << lastError();
    EXPECT_EQ(isMapped(0, memory.value()), *there == '1');
    EXPECT_EQ(static_cast<char*>(memory.value())[99], 0);
    EXPECT_TRUE(memory::release(memory.value()).ok()) << lastError();
    EXPECT_FALSE(memory::release(memory.value()).ok());
  }
}

}  // namespace
}  // namespace stretto::platform::cuda
