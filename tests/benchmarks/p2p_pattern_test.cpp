#include "../../benchmarks/p2p_pattern.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stretto::bench {
namespace {

std::vector<unsigned char> filled(const MessagePattern& pattern, size_t size) {
  std::vector<unsigned char> bytes(size);
  pattern.fill(bytes.data(), size);
  return bytes;
}

TEST(P2pPattern, IsRightAsItWasFilled) {
  for (const size_t size : {size_t{1}, size_t{8}, size_t{4099}}) {
    EXPECT_EQ(MessagePattern(3, 7, 1).countWrong(filled(MessagePattern(3, 7, 1), size).data(), size), 0u)
        << size;
  }
}

TEST(P2pPattern, CountsEachWrongByte) {
  std::vector<unsigned char> bytes = filled(MessagePattern(0, 1, 0), 1003);
  for (const size_t at : {size_t{0}, size_t{5}, size_t{500}, size_t{1002}}) bytes[at] ^= 1;
  EXPECT_EQ(MessagePattern(0, 1, 0).countWrong(bytes.data(), bytes.size()), 4u);
}

TEST(P2pPattern, SwappedChunksAreWrong) {
  for (const size_t chunk : {size_t{4} << 10, size_t{64} << 10, size_t{512} << 10}) {
    std::vector<unsigned char> bytes = filled(MessagePattern(0, 1, 0), 4 * chunk);
    std::swap_ranges(bytes.data(), bytes.data() + chunk, bytes.data() + 2 * chunk);
    EXPECT_GT(MessagePattern(0, 1, 0).countWrong(bytes.data(), bytes.size()), chunk) << chunk;
  }
}

TEST(P2pPattern, OtherMessagesTurnsAndDirectionsAreOthers) {
  const std::vector<unsigned char> bytes = filled(MessagePattern(2, 5, 0), 4096);
  for (const MessagePattern& other :
       {MessagePattern(3, 5, 0), MessagePattern(2, 6, 0), MessagePattern(2, 5, 1)}) {
    EXPECT_GT(other.countWrong(bytes.data(), bytes.size()), 3500u);
  }
}

}  // namespace
}  // namespace stretto::bench
