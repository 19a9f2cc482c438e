// Copies of every small length and alignment, and some large ones, on every CPU level.
#include "primitives/host/copy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "primitives/host/reduce.hpp"

namespace stretto {
namespace {

using Copy = void (*)(void*, const void*, size_t);

void checkCopy(Copy copy, size_t bytes, size_t dstOffset, size_t srcOffset) {
  constexpr size_t kGuard = 64;
  std::vector<unsigned char> src(bytes + 128), dst(bytes + 128 + 2 * kGuard, 0x5a);
  std::mt19937 random(static_cast<unsigned>(bytes));
  for (unsigned char& byte : src) byte = static_cast<unsigned char>(random());
  const auto aligned = [](unsigned char* p) { return p + (-reinterpret_cast<uintptr_t>(p) & 63); };
  unsigned char* const from = aligned(src.data()) + srcOffset;
  unsigned char* const to = aligned(dst.data() + kGuard) + dstOffset;
  copy(to, from, bytes);
  ASSERT_EQ(memcmp(to, from, bytes), 0) << bytes << " bytes, offsets " << dstOffset << " and " << srcOffset;
  for (unsigned char* p = dst.data(); p < dst.data() + dst.size(); ++p) {
    if (p < to || p >= to + bytes) {
      ASSERT_EQ(*p, 0x5a) << "wrote outside, at byte " << p - to << " of " << bytes;
    }
  }
}

class EveryLevel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    setenv("STRETTO_CPU", GetParam(), 1);
    if (!selectCpuLevel().ok()) GTEST_SKIP() << "this CPU has no level " << GetParam();
  }
  void TearDown() override {
    unsetenv("STRETTO_CPU");
    EXPECT_TRUE(selectCpuLevel().ok());
  }
};

TEST_P(EveryLevel, CopiesAnyLengthAndAlignment) {
  for (size_t bytes = 0; bytes < 200; ++bytes) {
    checkCopy(copyBytes, bytes, bytes % 64, 5);
    checkCopy(copyStream, bytes, bytes % 64, 5);
    ASSERT_FALSE(HasFailure());
  }
  for (size_t offset = 0; offset < 64; ++offset) {
    checkCopy(copyStream, 2048 + offset * 7, offset, offset * 13 % 64);
    checkCopy(copyStream, 65536 + offset, offset, 63 - offset);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(EveryLevel, CopiesLargeArrays) {
  for (const size_t bytes : {size_t{1} << 20, (size_t{5} << 20) + 17}) {
    checkCopy(copyStream, bytes, 1, 2);
    checkCopy(copyBytes, bytes, 1, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, EveryLevel, ::testing::Values("scalar", "avx2", "avx512", "neon"),
                         [](const auto& suite) { return std::string(suite.param); });

}  // namespace
}  // namespace stretto
