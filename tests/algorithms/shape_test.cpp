// The arithmetic on chunks, shards, rings, rotations and windows: every element exactly once.
#include "algorithms/shape.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "algorithms/ring.hpp"
#include "primitives/host/host.hpp"

namespace stretto::algorithms {
namespace {

TEST(Split, CoversEveryElementOnce) {
  for (const size_t count : {0, 1, 2, 15, 16, 17, 63, 64, 1000, 4097}) {
    for (const size_t parts : {1, 2, 3, 5, 8, 64}) {
      for (const size_t grain : {1, 4, 16, 64}) {
        const Split split(count, parts, grain);
        size_t next = 0;
        for (size_t part = 0; part < parts; ++part) {
          const Span span = split[part];
          ASSERT_EQ(span.begin, next);
          ASSERT_LE(span.size, split.each());
          ASSERT_TRUE(span.size == 0 || span.begin % grain == 0);
          const Span same = Split::ofEach(count, split.each())[part];
          ASSERT_TRUE(same.begin == span.begin && same.size == span.size);
          next += span.size;
        }
        ASSERT_EQ(next, count) << parts << " parts of grain " << grain;
        ASSERT_LT(split.each(), count / parts + 1 + grain);
      }
    }
  }
}

TEST(Chunks, AreAsManyAsTheLargestNeighboursTheLastOnesEmpty) {
  const Chunks none(0, 8, 20), less(9, 8, 20), whole(20, 8, 20);
  ASSERT_EQ(none.size(), 3u);
  ASSERT_EQ(less.size(), 3u);
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_EQ(Chunks(20, 8, 9).size(), 3u) << "what there is counts";
  EXPECT_EQ(less[1].size, 1u);
  for (const Span span : none) EXPECT_EQ(span.size, 0u);
  EXPECT_EQ(less[2].begin, 9u);
  EXPECT_EQ(less[2].size, 0u);
}

TEST(Chunks, CoverEveryElementOnce) {
  for (const size_t count : {0, 1, 2, 63, 64, 65, 1000}) {
    for (const size_t most : {0, 1, 2, 63, 64, 2000}) {
      size_t next = 0, number = 0;
      const Chunks chunks(count, most);
      for (const Span chunk : chunks) {
        ASSERT_EQ(chunk.begin, next);
        ASSERT_GT(chunk.size, 0u);
        ASSERT_LE(chunk.size, std::max<size_t>(most, 1));
        ASSERT_EQ(chunks[number].begin, chunk.begin);
        next += chunk.size;
        ++number;
      }
      ASSERT_EQ(next, count);
      ASSERT_EQ(number, chunks.size());
    }
  }
}

TEST(Elements, AtLeastOneFits) {
  EXPECT_EQ(elementsIn(0, 8), 1u);
  EXPECT_EQ(elementsIn(7, 8), 1u);
  EXPECT_EQ(elementsIn(64, 8), 8u);
  EXPECT_EQ(lineGrain(1), 64u);
  EXPECT_EQ(lineGrain(8), 8u);
}

TEST(Rotation, GivesEveryRankAnotherPeer) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int step = 1; step < ranks; ++step) {
      std::set<int> targets;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_NE(rotated(rank, step, ranks), rank);
        targets.insert(rotated(rank, step, ranks));
      }
      EXPECT_EQ(targets.size(), static_cast<size_t>(ranks));
    }
  }
}

TEST(RingStride, GoesThroughAllRanks) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (int ring = 0; ring < kMaxRings; ++ring) {
      EXPECT_EQ(std::gcd(ringStride(ring, ranks), ranks), 1) << ring << " of " << ranks;
    }
  }
  EXPECT_NE(ringStride(0, 8), ringStride(1, 8));
  EXPECT_EQ(ringStride(0, 2), ringStride(3, 2));  // there is only one
}

using Regions = std::vector<std::pair<size_t, size_t>>;

Regions regionsOf(const WindowLayout& layout) {
  Regions regions = {{0, sizeof(WindowHeader)}};
  const auto add = [&](size_t begin, size_t bytes) { regions.emplace_back(begin, begin + bytes); };
  for (int rank = 0; rank < static_cast<int>(layout.ranks); ++rank) {
    add(layout.credit(rank), kMailboxBytes);
    for (uint32_t slot = 0; slot < WindowLayout::kSlots; ++slot) {
      for (const Phase phase : {Phase::kScatter, Phase::kGather}) {
        add(layout.lines(slot, phase, rank), WindowLayout::kLineRegionBytes);
        add(layout.mailbox(slot, phase, rank), kMailboxBytes);
        add(layout.slot(slot, phase, rank), layout.slotBytes);
      }
    }
    for (uint64_t chunk = 0; chunk < WindowLayout::kLinkDepth; ++chunk) {
      add(layout.link(rank, chunk), layout.linkSlotBytes());
    }
  }
  std::sort(regions.begin(), regions.end());
  return regions;
}

TEST(WindowLayout, RegionsLieApart) {
  for (const uint32_t ranks : {1u, 2u, 5u, 64u}) {
    const WindowLayout layout{ranks, 4096, 65536};
    const Regions regions = regionsOf(layout);
    for (size_t i = 1; i < regions.size(); ++i) ASSERT_LE(regions[i - 1].second, regions[i].first) << ranks;
    EXPECT_LE(regions.back().second, layout.bytes());
    for (const auto& region : regions) EXPECT_EQ(region.first % kMailboxBytes, 0u);
    EXPECT_EQ(layout.link(0, 1), layout.link(0, 1 + WindowLayout::kLinkDepth));
  }
  const size_t lines = (WindowLayout::kMostLinePayload + Host::kLinePayload - 1) / Host::kLinePayload;
  EXPECT_LE(lines * Host::kLineBytes, WindowLayout::kLineRegionBytes);
}

}  // namespace
}  // namespace stretto::algorithms
