// Conversions between fp32 and the narrow formats: the plain arithmetic against the harness's oracle, and the
// device's instructions against the plain arithmetic, over every pattern there is.
#include "primitives/cuda/numeric.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "harness/oracle.hpp"
#include "harness/watchdog.hpp"
#include "primitives/cuda/anywhere.cuh"

namespace stretto {
namespace {

using namespace stretto::testing;
using cuda::as;
using cuda::kBitsOf;
using cuda::Pair;

template <typename NumericFormat, DataType kDataType>
struct Narrow {
  using Format = NumericFormat;
  static constexpr DataType kType = kDataType;
};
using NarrowFormats = ::testing::Types<
    Narrow<numeric::Float16, DataType::kFloat16>, Narrow<numeric::Bfloat16, DataType::kBfloat16>,
    Narrow<numeric::Float8e4m3, DataType::kFloat8e4m3>, Narrow<numeric::Float8e5m2, DataType::kFloat8e5m2>>;
struct FormatNames {
  template <typename Named>
  static std::string GetName(int) {
    return stretto::nameOf(Named::kType);
  }
};

template <typename Named>
class Conversions : public ::testing::Test {
 protected:
  using Format = typename Named::Format;
  static constexpr uint32_t kPatterns = 1u << kBitsOf<Format>;
  const testing::Format oracleFormat_ = formatOf(Named::kType);

  void expectEncodes(uint32_t bits) const {
    const float value = as<float>(bits);
    ASSERT_EQ(cuda::portable::encode<Format>(value), encode(oracleFormat_, value))
        << std::hex << "from fp32 0x" << bits;
  }
};
TYPED_TEST_SUITE(Conversions, NarrowFormats, FormatNames);

TYPED_TEST(Conversions, DecodeEveryPatternLikeTheOracle) {
  for (uint32_t bits = 0; bits < this->kPatterns; ++bits) {
    const double expected = decode(this->oracleFormat_, bits);
    const float got = cuda::portable::decode<typename TypeParam::Format>(bits);
    ASSERT_EQ(std::isnan(got), std::isnan(expected)) << "pattern " << bits;
    if (!std::isnan(expected)) ASSERT_EQ(as<uint32_t>(got), as<uint32_t>(static_cast<float>(expected)));
  }
}

// Between each two neighbours of the format: both, the tie, and the fp32 values next to all three.
TYPED_TEST(Conversions, EncodeTiesLikeTheOracle) {
  for (uint32_t bits = 0; bits < this->kPatterns; ++bits) {
    const double value = decode(this->oracleFormat_, bits);
    const double next = decode(this->oracleFormat_, (bits + 1) % this->kPatterns);
    if (!std::isfinite(value) || !std::isfinite(next)) continue;
    for (const double at : {value, (value + next) / 2}) {
      const uint32_t pattern = as<uint32_t>(static_cast<float>(at));
      for (const uint32_t near : {pattern - 1, pattern, pattern + 1}) this->expectEncodes(near);
    }
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(Conversions, EncodeAnythingLikeTheOracle) {
  Random random(600);
  for (int i = 0; i < 300000 && !this->HasFailure(); ++i)
    this->expectEncodes(static_cast<uint32_t>(random()));
  for (const uint32_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x7fc00000u, 0x7f7fffffu,
                              0xff7fffffu, 0x00000001u, 0x80000000u, 0x807fffffu}) {
    this->expectEncodes(bits);
  }
}

// Differences are counted, and one of them is kept.
struct Differences {
  unsigned long long count;
  uint32_t bits;
};

struct Report {
  Differences* to;
  __host__ __device__ void operator()(uint32_t bits) const {
#if defined(__CUDA_ARCH__)
    atomicAdd(&to->count, 1ull);
#else
    ++to->count;
#endif
    to->bits = bits;
  }
};

// The other half of the pair is NaN now and then: neither may disturb the other.
template <typename Format>
struct EncodeBody {
  Report report;
  __host__ __device__ void operator()(size_t i) const {
    const auto bits = static_cast<uint32_t>(i);
    const float value = as<float>(bits);
    const float other = as<float>(bits * 0x9e3779b1u ^ 0x7f000000u);
    const uint32_t one = cuda::portable::encode<Format>(value);
    const uint32_t two = cuda::portable::encode<Format>(other);
    const bool same = cuda::encodePair<Format>({value, other}) ==
                      (one | two << kBitsOf<Format>)&&cuda::encodePair<Format>({other, value}) ==
                      (two | one << kBitsOf<Format>);
    if (!same) report(bits);
  }
};

__host__ __device__ bool sameFloat(float a, float b) {
  return as<uint32_t>(cuda::canonical(a)) == as<uint32_t>(cuda::canonical(b));
}

template <typename Format>
struct DecodeBody {
  Report report;
  __host__ __device__ void operator()(size_t i) const {
    constexpr uint32_t kMask = (1u << kBitsOf<Format>)-1;
    const auto bits = static_cast<uint32_t>(i);
    const Pair pair = cuda::decodePair<Format>(bits);
    const bool same = sameFloat(pair.low, cuda::portable::decode<Format>(bits & kMask)) &&
                      sameFloat(pair.high, cuda::portable::decode<Format>(bits >> kBitsOf<Format>));
    if (!same) report(bits);
  }
};

template <typename Body>
void expectNoDifference(Place place, size_t count) {
  Shared<Differences> differences(place, 1);
  forAll(place, count, Body{{differences.data()}});
  EXPECT_EQ(differences[0].count, 0u) << std::hex << "one of them at 0x" << differences[0].bits;
}

// On the CPU this says that pairs are put together right, on a device that the instructions do what the plain
// arithmetic does.
TYPED_TEST(Conversions, PairsOnTheCpu) {
  expectNoDifference<EncodeBody<typename TypeParam::Format>>(Place::kCpu, size_t{1} << 22);
  expectNoDifference<DecodeBody<typename TypeParam::Format>>(Place::kCpu, size_t{1} << 16);
}

TYPED_TEST(Conversions, PairsOfAllPatternsOnADevice) {
  if (const std::string why = absent(Place::kDevice); !why.empty()) GTEST_SKIP() << why;
  const Watchdog watchdog("conversions of all patterns", 120);
  constexpr size_t kAllPairs = size_t{1} << (2 * kBitsOf<typename TypeParam::Format>);
  expectNoDifference<EncodeBody<typename TypeParam::Format>>(Place::kDevice, size_t{1} << 32);
  expectNoDifference<DecodeBody<typename TypeParam::Format>>(Place::kDevice, kAllPairs);
}

}  // namespace
}  // namespace stretto
