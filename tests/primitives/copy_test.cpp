// Copies of every small length and alignment, and some large ones, on every CPU level.
#include "primitives/host/copy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
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

// Runs `check` on every level that this CPU has, and fails if there is none.
template <typename Check>
void onEveryLevel(Check check) {
  int levels = 0;
  for (const char* level : {"scalar", "avx2", "avx512", "neon"}) {
    setenv("STRETTO_CPU", level, 1);
    if (!selectCpuLevel().ok()) continue;
    SCOPED_TRACE(level);
    check();
    ++levels;
  }
  unsetenv("STRETTO_CPU");
  EXPECT_TRUE(selectCpuLevel().ok());
  EXPECT_GT(levels, 0);
}

TEST(Copy, AnyLengthAndAlignment) {
  onEveryLevel([] {
    for (size_t bytes = 0; bytes < 200; ++bytes) {
      checkCopy(copyBytes, bytes, bytes % 64, 5);
      checkCopy(copyStream, bytes, bytes % 64, 5);
    }
    for (size_t offset = 0; offset < 64; ++offset) {
      checkCopy(copyStream, 2048 + offset * 7, offset, offset * 13 % 64);
      checkCopy(copyStream, 65536 + offset, offset, 63 - offset);
    }
  });
}

TEST(Copy, LargeArrays) {
  onEveryLevel([] {
    for (const size_t bytes : {size_t{1} << 20, (size_t{5} << 20) + 17}) {
      checkCopy(copyStream, bytes, 1, 2);
      checkCopy(copyBytes, bytes, 1, 2);
    }
  });
}

}  // namespace
}  // namespace stretto
