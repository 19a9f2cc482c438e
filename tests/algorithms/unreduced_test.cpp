// Rings that reduce nothing: in the place of every block's sum stands the input of one rank, as it was.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/every_algorithm.hpp"
#include "harness/ranks.hpp"
#include "harness/wrapped_host.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Span;

constexpr uint32_t kChunkBytes = 1024;
constexpr size_t kCount = 5003;

int32_t inputOf(int rank, size_t index) {
  return rank * 1000003 + static_cast<int32_t>(index);
}

// A block sets out behind the rank that it is for, and comes to that rank last.
int sourceOf(int owner, size_t window, const Algorithm<Host>& how, int ranks) {
  const int ring = static_cast<int>(window % static_cast<size_t>(how.rings));
  return (owner + algorithms::ringStride(ring, ranks)) % ranks;
}

std::vector<int32_t> allReduced(const Algorithm<Host>& how, int ranks) {
  std::vector<int32_t> expected(kCount);
  const size_t parts = static_cast<size_t>(ranks);
  size_t window = 0;
  for (const Span all : algorithms::Chunks(kCount, kChunkBytes / sizeof(int32_t) * parts)) {
    const algorithms::Split shards(all.size, parts, algorithms::lineGrain(sizeof(int32_t)));
    for (int owner = 0; owner < ranks; ++owner) {
      const Span shard = shards[static_cast<size_t>(owner)];
      for (size_t i = all.begin + shard.begin; i < all.begin + shard.begin + shard.size; ++i) {
        expected[i] = inputOf(sourceOf(owner, window, how, ranks), i);
      }
    }
    ++window;
  }
  return expected;
}

std::vector<int32_t> scattered(const Algorithm<Host>& how, int ranks, int rank) {
  std::vector<int32_t> expected(kCount);
  constexpr size_t kEach = kChunkBytes / sizeof(int32_t);
  for (size_t i = 0; i < kCount; ++i) {
    const int source = sourceOf(rank, i / kEach, how, ranks);
    expected[i] = inputOf(source, static_cast<size_t>(rank) * kCount + i);
  }
  return expected;
}

class UnreducedAmong : public ::testing::TestWithParam<int> {};

void runOne(const Member& member, Host& host, const Algorithm<Host>& how, bool inPlace) {
  const int ranks = host.ranks();
  const bool scatters = how.row->collective == Collective::kReduceScatter;
  std::vector<int32_t> send(kCount * static_cast<size_t>(scatters ? ranks : 1));
  for (size_t i = 0; i < send.size(); ++i) send[i] = inputOf(member.rank, i);
  std::vector<int32_t> apart(kCount);
  int32_t* const own = send.data() + (scatters ? static_cast<size_t>(member.rank) * kCount : 0);
  int32_t* const receive = inPlace ? own : apart.data();
  Arguments arguments;
  arguments.send = reinterpret_cast<const std::byte*>(send.data());
  arguments.receive = reinterpret_cast<std::byte*>(receive);
  arguments.count = kCount;
  arguments.elementBytes = sizeof(int32_t);
  // An average would divide what was not summed.
  arguments.reduce = {DataType::kInt32, Operator::kAvg, static_cast<uint32_t>(ranks)};
  arguments.chunkBytes = kChunkBytes;
  arguments.rings = how.rings;
  arguments.directions = static_cast<int>(how.directions);
  const Status status = how.run(host, arguments);
  const auto expected = scatters ? scattered(how, ranks, member.rank) : allReduced(how, ranks);
  member.check(status.ok(), "the operation failed");
  member.check(std::equal(expected.begin(), expected.end(), receive),
               (std::string(nameOf(how.row->collective)) + " by " + std::to_string(how.rings) + " rings, " +
                nameOf(how.directions))
                   .c_str());
}

TEST_P(UnreducedAmong, BlocksAreInputsOfOneRank) {
  Job job(GetParam(), 4096, kChunkBytes, Reach::kAddress);
  asThreads(GetParam(), [&](Member& member) {
    Host& host = job.host(member.rank);
    uint64_t tag = 0;
    for (const Algorithm<Host>& how : everyUnreduced<Host>()) {
      for (const bool inPlace : {false, true}) {
        host.begin(++tag, 0);
        runOne(member, host, how, inPlace);
        host.end();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, UnreducedAmong, ::testing::Values(2, 3, 4, 5, 8));

}  // namespace
}  // namespace stretto
