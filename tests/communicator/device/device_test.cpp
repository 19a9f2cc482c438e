// What can be said of communicators on GPUs without one: how much of a device they take, and how they are
// chosen.
#include <gtest/gtest.h>

#include "algorithms/shape.hpp"
#include "algorithms/shares.hpp"
#include "base/parameters.hpp"
#include "base/scoped_variable.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/device/connect.hpp"
#include "communicator/device/layout.hpp"
#include "communicator/device/side.hpp"
#include "harness/ranks.hpp"
#include "planner/cuda_model.hpp"
#include "planner/model.hpp"

namespace stretto::communicator {
namespace {

using stretto::testing::ScopedVariable;

// Of all windows of a rank: its own, and a stand-in for each peer's.
TEST(ProxiedShape, StaysWithinWhatMayBePinned) {
  constexpr size_t kMostPinned = size_t{320} << 20;
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const int channels : {1, 3, kMostChannels}) {
      const auto shape = proxiedShape(ranks, channels);
      EXPECT_GE(shape.channels, 1);
      EXPECT_LE(shape.channels, channels);
      EXPECT_EQ(shape.deepChannels, shape.channels);
      EXPECT_LE(shape.windowBytes() * static_cast<size_t>(ranks), kMostPinned) << ranks << " ranks";
      EXPECT_EQ(shape.layout.linkChunk & (shape.layout.linkChunk - 1), 0u);
      EXPECT_GE(links::net::chunkBytesFor(ranks), shape.layout.linkChunk + 64) << "a message holds one";
    }
  }
}

TEST(DeviceShape, FitsWhateverTheRanksAndChannels) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (const int channels : {1, 2, 7, 32, kMostChannels}) {
      const auto shape = deviceShape(ranks, channels);
      EXPECT_GE(shape.channels, 1);
      EXPECT_LE(shape.channels, channels);
      for (const int some : {shape.warpChunkChannels, shape.deepChannels}) {
        EXPECT_GE(some, 1);
        EXPECT_LE(some, shape.channels);
      }
      EXPECT_LE(shape.windowBytes(), mostDeviceBytes(ranks))
          << ranks << " ranks, " << channels << " channels";
      EXPECT_GE(shape.layout.slotBytes, 1024u);
      EXPECT_GE(shape.layout.linkChunk, 1024u);
      EXPECT_EQ(shape.layout.slots & (shape.layout.slots - 1), 0u) << "slots are found by a mask";
      EXPECT_EQ(shape.layout.warpChunks & (shape.layout.warpChunks - 1), 0u) << "and so are runs";
      EXPECT_EQ(shape.layout.ll128Region % 128, 0u) << "whole lines";
    }
  }
}

TEST(DeviceShape, TwoRanksGetTheChannelsTheyWant) {
  for (const int channels : {1, 32, 64, kMostChannels})
    EXPECT_EQ(deviceShape(2, channels).channels, channels);
  EXPECT_EQ(deviceShape(2, kMostChannels).warpChunkChannels, kMostChannels);
  EXPECT_EQ(deviceShape(2, kMostChannels).deepChannels, 64) << "measured with these";
}

// Also among ranks whose lines have no second round.
TEST(DeviceShape, LamportLinesHoldTwoShotsOfFourMegabytes) {
  for (const int ranks : {3, 4, 8}) {
    planner::Machine machine;
    ASSERT_TRUE(describe(deviceShape(ranks, kMostChannels), planner::Gpus{}, machine).ok());
    planner::Request request{Collective::kAllReduce, DataType::kBfloat16, Operator::kSum, size_t{4} << 20,
                             ranks};
    for (const auto& row : algorithms::descriptors(algorithms::Device::kCuda)) {
      if (row.collective != request.collective || row.algorithm != algorithms::Algorithm::kTwoShot) continue;
      // Those need no lines, but a window.
      if (row.protocol == algorithms::Protocol::kCopy || algorithms::isPull(row.protocol)) continue;
      EXPECT_EQ(obstacleTo(row, request, machine), planner::Obstacle::kNone) << ranks << " ranks";
    }
  }
}

// The engine refuses what it would have to cut: a share of the block, or of one owner's part of it, beyond
// the lines.
TEST(DeviceShape, WhatIsPlannedInLamportLinesFitsThem) {
  int planned = 0;
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    planner::Machine machine;
    const auto shape = deviceShape(ranks, kMostChannels);
    ASSERT_TRUE(describe(shape, planner::Gpus{}, machine).ok());
    for (size_t bytes = 64; bytes <= size_t{8} << 20; bytes += bytes / 3 + 8) {
      for (const auto& row : algorithms::descriptors(algorithms::Device::kCuda)) {
        if (row.protocol != algorithms::Protocol::kLamport) continue;
        const planner::Request request{row.collective, DataType::kFloat32, Operator::kSum, bytes, ranks};
        if (obstacleTo(row, request, machine) != planner::Obstacle::kNone) continue;
        const auto blocks = static_cast<size_t>(preferredBlocks(row, request, machine));
        const size_t owners =
            row.algorithm == algorithms::Algorithm::kTwoShot ? static_cast<size_t>(ranks) : 1;
        // As kernels cut them.
        const size_t share = algorithms::Split(bytes, blocks, 128).each();
        const size_t shard = algorithms::Split(share, owners, 64).each();
        const size_t payload = stretto::cuda::lamportPayload(shape.layout);
        const size_t most =
            algorithms::mostInLamportLines(payload, blocks, row.collective, row.algorithm, ranks);
        if (most == SIZE_MAX) continue;  // it takes as many rounds as it needs
        EXPECT_TRUE(shard <= payload && bytes <= most) << bytes << " bytes of " << nameOf(row.collective)
                                                       << ", " << ranks << " ranks, " << blocks << " blocks";
        ++planned;
      }
    }
  }
  EXPECT_GT(planned, 2000);
}

// A warp stores whole lines of 128 bytes only if what it stores to begins on one.
TEST(DeviceShape, WhatWarpsStoreToBeginsOnWholeLines) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const auto shape = deviceShape(ranks, kMostChannels);
    const WindowLayout& layout = shape.layout;
    const auto isWhole = [](size_t offset) { return offset % 128 == 0; };
    EXPECT_TRUE(isWhole(shape.nearBytes()) && isWhole(layout.warpChunkBytes) && isWhole(layout.linkChunk))
        << ranks;
    for (int source = 0; source < ranks - 1; ++source) {
      for (uint32_t phase = 0; phase < layout.linePhases; ++phase) {
        EXPECT_TRUE(
            isWhole(shape.warpChunksBegin(1) + layout.warpChunksOf(static_cast<Phase>(phase), source)))
            << ranks;
        EXPECT_TRUE(isWhole(layout.ll128Lines(1, static_cast<Phase>(phase), source))) << ranks;
      }
      EXPECT_TRUE(isWhole(shape.deepBegin(1) + layout.linkChunksOf(source))) << ranks;
    }
  }
}

// A warp fills one place while another is read, and warps of a link hold one while they wait for the next.
TEST(DeviceShape, RingsHaveTwoPlacesForEachWarp) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const WindowLayout layout = deviceShape(ranks, kMostChannels).layout;
    EXPECT_GE(layout.warpChunks, 2u * 4) << ranks << " ranks";
    EXPECT_EQ(layout.linkWarpChunks, (ranks == 2 ? 2 : 1) * WindowLayout::kWarpChunkCredits)
        << ranks << " ranks";
  }
}

TEST(DeviceShape, ChannelsDoNotOverlap) {
  const auto shape = deviceShape(4, 32);
  for (int channel = 0; channel + 1 < shape.channels; ++channel) {
    EXPECT_EQ(shape.nearBegin(channel) + shape.nearBytes(), shape.nearBegin(channel + 1));
  }
  EXPECT_EQ(shape.warpChunksBegin(0), shape.nearBegin(shape.channels));
  // Slots begin where the last channel's lines end.
  EXPECT_GE(shape.deepBegin(0) + shape.layout.slotsBegin(),
            shape.nearBegin(shape.channels - 1) + shape.nearBytes());
  EXPECT_EQ(shape.deepBegin(shape.deepChannels - 1) + shape.layout.bytes(), shape.signalsBegin());
  const int senders = static_cast<int>(shape.layout.ranks) + 1;
  EXPECT_EQ(shape.signalsBegin() + shape.signalAt(senders - 1, stretto::cuda::kSignals), shape.windowBytes());
}

TEST(Channels, OfRanksThatShareADeviceFitTogether) {
  EXPECT_EQ(residentFor(132, 1), 132);
  EXPECT_EQ(residentFor(132, 2), 66);
  EXPECT_EQ(residentFor(132, 8), 16);
  EXPECT_EQ(residentFor(3, 8), 1) << "at least one";
}

TEST(Channels, LeaveRoomForTheKernelsOfOtherCommunicatorsOnASharedDevice) {
  EXPECT_EQ(kernelsAtOnce(0, 1), 1) << "nobody shares it";
  EXPECT_EQ(kernelsAtOnce(1, 1), 8) << "the other ranks there belong to other communicators";
  EXPECT_EQ(kernelsAtOnce(1, 4), 8);
  EXPECT_EQ(kernelsAtOnce(1, 16), 32) << "two of each rank";
  EXPECT_EQ(kernelsAtOnce(2, 2), 2) << "the user has counted them";
  EXPECT_EQ(kernelsAtOnce(12, 4), 12);
  EXPECT_EQ(kernelsAtOnce(2, 4), 4) << "of one operation there is one for each rank";
}

TEST(DeviceChoice, CpuIsTheHostWhateverThereIs) {
  const ScopedVariable variable("STRETTO_DEVICE", "cpu");
  const auto device = deviceOfThisThread();
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value(), kHostDevice);
}

TEST(DeviceChoice, AutoIsTheHostWhereThereIsNoGpu) {
  if (platform::cuda::deviceCount() > 0) GTEST_SKIP() << "there is a GPU";
  const ScopedVariable variable("STRETTO_DEVICE", "auto");
  const auto device = deviceOfThisThread();
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value(), kHostDevice);
}

TEST(DeviceChoice, CudaWithoutAGpuSaysWhy) {
  if (platform::cuda::deviceCount() > 0) GTEST_SKIP() << "there is a GPU";
  const ScopedVariable variable("STRETTO_DEVICE", "cuda");
  const auto device = deviceOfThisThread();
  EXPECT_EQ(device.status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("STRETTO_DEVICE=cuda"), std::string::npos) << lastError();
  EXPECT_NE(lastError().find(platform::cuda::absence()), std::string::npos) << lastError();
}

TEST(DeviceChoice, AnythingElseIsRefused) {
  const ScopedVariable variable("STRETTO_DEVICE", "gpu");
  EXPECT_EQ(deviceOfThisThread().status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("auto, cuda or cpu"), std::string::npos) << lastError();
}

// Through the API: no handle, and words.
TEST(DeviceChoice, CommunicatorsAreNotMadeOnADeviceThatIsNotThere) {
  if (platform::cuda::deviceCount() > 0) GTEST_SKIP() << "there is a GPU";
  const ScopedVariable variable("STRETTO_DEVICE", "cuda");
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
  EXPECT_EQ(comm, nullptr);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("no GPU"), std::string::npos);
  ncclComm_t comms[2] = {};
  EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclInvalidUsage);
  void* memory = &id;
  EXPECT_EQ(ncclMemAlloc(&memory, 100), ncclInvalidUsage);
  EXPECT_EQ(memory, nullptr);
}

}  // namespace
}  // namespace stretto::communicator
