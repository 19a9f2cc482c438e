// Reductions against the harness's scalar oracle. Every comparison is of bits, and runs on every CPU level
// that this machine offers.
#include "primitives/host/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "harness/guarded.hpp"
#include "harness/oracle.hpp"
#include "harness/watchdog.hpp"
#include "primitives/level_guard.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

// ---- Inputs -----------------------------------------------------------------------------------------------

// Arrays of one case, each at its own odd address.
class Sources {
 public:
  Sources(DataType type, int number, size_t count, Random& random) {
    for (int s = 0; s < number; ++s) {
      storage_.emplace_back(count * sizeOf(type) + 64);
      char* array = storage_.back().data() + random() % 64;
      fillRandom(type, array, count, random);
      pointers_.push_back(array);
    }
  }
  const std::vector<const void*>& pointers() const { return pointers_; }

 private:
  std::vector<std::vector<char>> storage_;
  std::vector<const void*> pointers_;
};

// ---- Levels -----------------------------------------------------------------------------------------------

std::vector<std::string> availableLevels() {
  LevelGuard guard;
  std::vector<std::string> levels;
  for (const char* name : {"scalar", "avx2", "avx512", "neon"}) {
    setenv("STRETTO_CPU", name, 1);
    if (selectCpuLevel().ok()) levels.push_back(name);
  }
  return levels;
}

void useLevel(const std::string& level) {
  setenv("STRETTO_CPU", level.c_str(), 1);
  ASSERT_TRUE(selectCpuLevel().ok());
  ASSERT_EQ(level, cpuLevel());
}

// ---- Checks -----------------------------------------------------------------------------------------------

std::string describe(const ReduceSpec& spec, size_t sources, size_t count) {
  return std::string(cpuLevel()) + " " + nameOf(spec.type) + " " + nameOf(spec.op) + "/" +
         std::to_string(spec.divisor) + " sources " + std::to_string(sources) + " count " +
         std::to_string(count);
}

struct Case {
  ReduceSpec spec;
  std::vector<const void*> sources;
  std::vector<char> expected;  // for the longest count; a shorter one is its prefix
};

void checkOutOfPlace(const Case& c, size_t count, size_t offset, bool stream) {
  const size_t element = sizeOf(c.spec.type);
  Guarded dst(count * element, offset);
  reduce(c.spec, dst.data(), c.sources.data(), static_cast<int>(c.sources.size()), count, stream);
  dst.expectEqual(c.expected.data(), element,
                  describe(c.spec, c.sources.size(), count) + " offset " + std::to_string(offset) +
                      (stream ? " stream" : ""));
}

void checkInPlace(const Case& c, size_t count, size_t offset, size_t which, bool stream) {
  const size_t element = sizeOf(c.spec.type);
  Guarded dst(count * element, offset);
  if (count != 0) memcpy(dst.data(), c.sources[which], count * element);
  std::vector<const void*> sources = c.sources;
  sources[which] = dst.data();
  reduce(c.spec, dst.data(), sources.data(), static_cast<int>(sources.size()), count, stream);
  dst.expectEqual(c.expected.data(), element,
                  describe(c.spec, sources.size(), count) + " in place of " + std::to_string(which));
}

void checkTwo(const Case& c, size_t count, size_t offset, bool stream) {
  const size_t element = sizeOf(c.spec.type);
  Guarded dst(count * element, offset);
  Guarded second(count * element, offset * 7 + 3);
  reduceTwo(c.spec, dst.data(), second.data(), c.sources.data(), static_cast<int>(c.sources.size()), count,
            stream);
  dst.expectEqual(c.expected.data(), element, describe(c.spec, c.sources.size(), count) + " first of two");
  second.expectEqual(c.expected.data(), element,
                     describe(c.spec, c.sources.size(), count) + " second of two");
}

void checkCase(const Case& c, size_t longest, Random& random) {
  const size_t element = sizeOf(c.spec.type);
  for (size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{13}, size_t{31},
                       size_t{33}, size_t{65}, size_t{129}, longest / 2 + 1, longest}) {
    count = std::min(count, longest);
    for (const size_t offset : {size_t{0}, element * (random() % 16), size_t{random() % 64}}) {
      checkOutOfPlace(c, count, offset, random() % 2 == 0);
    }
    checkInPlace(c, count, random() % 64, random() % c.sources.size(), random() % 2 == 0);
    checkTwo(c, count, element * (random() % 16), random() % 2 == 0);
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<ReduceSpec> specsOf(DataType type) {
  return {{type, Operator::kSum},    {type, Operator::kProd},   {type, Operator::kMax},
          {type, Operator::kMin},    {type, Operator::kAvg, 1}, {type, Operator::kAvg, 2},
          {type, Operator::kAvg, 3}, {type, Operator::kAvg, 8}, {type, Operator::kAvg, 61}};
}

class EveryType : public ::testing::TestWithParam<DataType> {};

TEST_P(EveryType, MatchesTheOracleOnEveryLevel) {
  LevelGuard guard;
  const std::vector<std::string> levels = availableLevels();
  ASSERT_FALSE(levels.empty());
  Random random(20 + static_cast<int>(GetParam()));
  const size_t longest = 4700 / sizeOf(GetParam()) + 5;  // beyond the threshold for alignment, and odd
  for (const int number : {1, 2, 3, 5, 8, 9, 64}) {
    const Sources sources(GetParam(), number, longest, random);
    for (const ReduceSpec& spec : specsOf(GetParam())) {
      const Case c{spec, sources.pointers(), oracle(spec, sources.pointers(), longest)};
      for (const std::string& level : levels) {
        useLevel(level);
        checkCase(c, longest, random);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST_P(EveryType, ScalesLikeTheProductWithAConstant) {
  LevelGuard guard;
  const DataType type = GetParam();
  Random random(40 + static_cast<int>(type));
  const size_t count = 1031;
  for (int round = 0; round < 12; ++round) {
    const Sources sources(type, 2, count, random);
    std::vector<char> scalars(count * sizeOf(type));
    for (size_t i = 0; i < count; ++i) {
      memcpy(&scalars[i * sizeOf(type)],
             static_cast<const char*>(sources.pointers()[1]) + round * sizeOf(type), sizeOf(type));
    }
    const ReduceSpec product{type, Operator::kProd};
    const std::vector<char> expected = oracle(product, {sources.pointers()[0], scalars.data()}, count);
    for (const std::string& level : availableLevels()) {
      useLevel(level);
      for (const size_t length : {size_t{0}, size_t{1}, size_t{30}, count}) {
        Guarded dst(length * sizeOf(type), random() % 64);
        scale(type, dst.data(), sources.pointers()[0], scalars.data(), length);
        dst.expectEqual(expected.data(), sizeOf(type), describe(product, 2, length) + " scale");
        Guarded inPlace(length * sizeOf(type), random() % 64);
        if (length != 0) memcpy(inPlace.data(), sources.pointers()[0], length * sizeOf(type));
        scale(type, inPlace.data(), inPlace.data(), scalars.data(), length);
        inPlace.expectEqual(expected.data(), sizeOf(type), describe(product, 2, length) + " scale in place");
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType, ::testing::ValuesIn(kTypes),
                         [](const auto& suite) { return std::string(nameOf(suite.param)); });

// Compares on every level, all elements at once.
void checkEverywhere(const ReduceSpec& spec, const std::vector<const void*>& sources, size_t count) {
  LevelGuard guard;
  const std::vector<char> expected = oracle(spec, sources, count);
  for (const std::string& level : availableLevels()) {
    useLevel(level);
    Guarded dst(count * sizeOf(spec.type), 0);
    reduce(spec, dst.data(), sources.data(), static_cast<int>(sources.size()), count);
    dst.expectEqual(expected.data(), sizeOf(spec.type), describe(spec, sources.size(), count));
  }
}

class EveryNarrowFloat : public ::testing::TestWithParam<DataType> {
 protected:
  uint32_t patterns() const { return sizeOf(GetParam()) == 1 ? 256 : 65536; }
  void put(std::vector<char>& array, size_t i, uint32_t bits) const {
    const size_t element = sizeOf(GetParam());
    if (array.size() < (i + 1) * element) array.resize((i + 1) * element);
    memcpy(&array[i * element], &bits, element);
  }
  void check(Operator op, const std::vector<char>& a, const std::vector<char>& b,
             uint32_t divisor = 1) const {
    checkEverywhere({GetParam(), op, divisor}, {a.data(), b.data()}, a.size() / sizeOf(GetParam()));
  }
};

// Decoding then encoding gives every pattern back; the oracle says what becomes of NaN and, in e5m2, of the
// infinities.
TEST_P(EveryNarrowFloat, RoundTripsEveryPattern) {
  LevelGuard guard;
  std::vector<char> all;
  for (uint32_t bits = 0; bits < patterns(); ++bits) put(all, bits, bits);
  std::vector<char> one;
  put(one, 0, encode(formatOf(GetParam()), 1.0));
  for (const std::string& level : availableLevels()) {
    useLevel(level);
    std::vector<char> result(all.size());
    scale(GetParam(), result.data(), all.data(), one.data(), patterns());
    for (uint32_t bits = 0; bits < patterns(); ++bits) {
      uint32_t got = 0;
      memcpy(&got, &result[bits * sizeOf(GetParam())], sizeOf(GetParam()));
      const double value = decode(formatOf(GetParam()), bits);
      const bool survives = !std::isnan(value) && !(std::isinf(value) && formatOf(GetParam()).saturates);
      ASSERT_EQ(got, survives ? bits : encode(formatOf(GetParam()), value)) << level << " pattern " << bits;
    }
  }
}

// Sums, products and quotients of pairs reach every rounding case: ties both ways, subnormals, overflow.
TEST_P(EveryNarrowFloat, RoundsPairsLikeTheOracle) {
  Random random(60);
  std::vector<char> a, b;
  for (uint32_t i = 0; i < 65536; ++i) {
    put(a, i, sizeOf(GetParam()) == 1 ? i % 256 : static_cast<uint32_t>(random()));
    put(b, i, sizeOf(GetParam()) == 1 ? i / 256 : static_cast<uint32_t>(random()));
  }
  for (const Operator op : {Operator::kSum, Operator::kProd, Operator::kMax, Operator::kMin}) check(op, a, b);
  for (const uint32_t divisor : {2u, 3u, 7u, 64u, 1000u}) check(Operator::kAvg, a, b, divisor);
}

INSTANTIATE_TEST_SUITE_P(Types, EveryNarrowFloat, ::testing::ValuesIn(kNarrowFloats),
                         [](const auto& suite) { return std::string(nameOf(suite.param)); });

// Any fp32 is the exact sum of three 8-bit (bf16) or 11-bit (fp16) pieces, so that three sources drive chosen
// fp32 values, ties and their neighbours included, through each level's rounding.
void checkChosenFloats(DataType type, int lowExponent, int highExponent) {
  const Format format = formatOf(type);
  Random random(80);
  std::vector<float> values;
  for (int i = 0; i < 50000; ++i) {
    const int exponent = lowExponent + static_cast<int>(random() % (highExponent - lowExponent + 1));
    uint64_t mantissa = (random() & 0x7fffff) | 0x800000;
    const uint64_t dropped = (uint64_t{1} << (23 - format.mantissaBits)) - 1;
    const uint64_t tie = (mantissa & ~dropped) | (dropped / 2 + 1);
    if (i % 2 == 0) mantissa = tie + random() % 3 - 1;
    const float value = static_cast<float>(std::ldexp(static_cast<double>(mantissa), exponent - 23));
    values.push_back(i % 4 < 2 ? value : -value);
  }
  std::vector<uint16_t> pieces[3];
  for (const float value : values) {
    double rest = value;
    for (auto& piece : pieces) {
      piece.push_back(static_cast<uint16_t>(encode(format, rest)));
      rest -= decode(format, piece.back());
    }
    ASSERT_EQ(rest, 0.0) << "not the sum of three pieces: " << value;
  }
  checkEverywhere({type, Operator::kSum}, {pieces[0].data(), pieces[1].data(), pieces[2].data()},
                  values.size());
}

TEST(Reduce, RoundsChosenFloatsToBfloat16) {
  checkChosenFloats(DataType::kBfloat16, -100, 126);
}
TEST(Reduce, RoundsChosenFloatsToFloat16) {
  checkChosenFloats(DataType::kFloat16, 0, 14);
}

TEST(Reduce, TruncatesEveryByteQuotient) {
  std::vector<uint8_t> all(256);
  for (int i = 0; i < 256; ++i) all[i] = static_cast<uint8_t>(i);
  for (uint32_t divisor = 1; divisor <= 300; ++divisor) {
    checkEverywhere({DataType::kInt8, Operator::kAvg, divisor}, {all.data()}, all.size());
    checkEverywhere({DataType::kUint8, Operator::kAvg, divisor}, {all.data()}, all.size());
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

TEST(Reduce, TruncatesWideQuotients) {
  Random random(100);
  std::vector<uint64_t> values;
  for (const uint32_t divisor :
       {2u, 3u, 5u, 7u, 48u, 64u, 255u, 65537u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    for (uint64_t multiple = 0; multiple < 40; ++multiple) {
      for (int delta = -1; delta <= 1; ++delta) {
        values.push_back(divisor * multiple + delta);
        values.push_back((random() / divisor) * divisor + delta);
        values.push_back((uint64_t{1} << 63) + delta);
        values.push_back(random() >> (random() % 64));
      }
    }
  }
  for (const uint32_t divisor :
       {2u, 3u, 5u, 7u, 48u, 64u, 255u, 65537u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    checkEverywhere({DataType::kInt64, Operator::kAvg, divisor}, {values.data()}, values.size());
    checkEverywhere({DataType::kUint64, Operator::kAvg, divisor}, {values.data()}, values.size());
    checkEverywhere({DataType::kInt32, Operator::kAvg, divisor}, {values.data()}, values.size() * 2);
    checkEverywhere({DataType::kUint32, Operator::kAvg, divisor}, {values.data()}, values.size() * 2);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// A NaN is the result wherever it comes from: nothing hides it, and no order matters. Without the oracle.
TEST(Reduce, MaximumAndMinimumHideNoNan) {
  LevelGuard guard;
  constexpr size_t kCount = 100;  // more than any vector, with a rest
  constexpr size_t kSources = 4;
  for (const DataType type : kTypes) {
    if (!isFloating(type)) continue;
    for (const std::string& level : availableLevels()) {
      useLevel(level);
      for (const Operator op : {Operator::kMax, Operator::kMin}) {
        for (size_t which = 0; which < kSources; ++which) {
          std::vector<std::vector<char>> sources(kSources, std::vector<char>(kCount * sizeOf(type)));
          const void* pointers[kSources];
          for (size_t s = 0; s < kSources; ++s) {
            for (size_t i = 0; i < kCount; ++i) {
              const double number = i % 3 == 0 ? -2.0 : i % 3 == 1 ? 0.0 : 1.0;
              putFloat(type, sources[s].data(), i, s == which && i % 2 == 0 ? NAN : number);
            }
            pointers[s] = sources[s].data();
          }
          std::vector<char> result(kCount * sizeOf(type));
          reduce({type, op}, result.data(), pointers, kSources, kCount);
          for (size_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(std::isnan(valueAt(type, result.data(), i)), i % 2 == 0)
                << level << " " << nameOf(type) << " " << nameOf(op) << " source " << which << " element "
                << i;
          }
        }
      }
    }
  }
}

// What the header promises in words, without the oracle.
TEST(Reduce, KnownAnswers) {
  LevelGuard guard;
  for (const std::string& level : availableLevels()) {
    useLevel(level);
    const float a[] = {0.0f, -0.0f, NAN, 1.0f, INFINITY, -0.0f};
    const float b[] = {-0.0f, 0.0f, 1.0f, NAN, -INFINITY, -0.0f};
    const void* sources[] = {a, b};
    float result[6];
    reduce({DataType::kFloat32, Operator::kMax}, result, sources, 2, 6);
    EXPECT_FALSE(std::signbit(result[0]) || std::signbit(result[1]));
    EXPECT_TRUE(std::isnan(result[2]) && std::isnan(result[3]) && std::signbit(result[5]));
    reduce({DataType::kFloat32, Operator::kMin}, result, sources, 2, 6);
    EXPECT_TRUE(std::signbit(result[0]) && std::signbit(result[1]));
    EXPECT_TRUE(std::isnan(result[2]) && std::isnan(result[3]));
    reduce({DataType::kFloat32, Operator::kSum}, result, sources, 2, 6);
    uint32_t bits = 0;
    memcpy(&bits, &result[4], sizeof bits);
    EXPECT_EQ(bits, 0x7fc00000u);  // inf - inf, whatever the instruction set makes of it

    const uint8_t e4m3[] = {0x7e, 0x08, 0xfe};  // 448, 2^-6, -448
    const void* same[] = {e4m3, e4m3};
    uint8_t sum[3];
    reduce({DataType::kFloat8e4m3, Operator::kSum}, sum, same, 2, 3);
    EXPECT_EQ(sum[0], 0x7e);  // saturates
    EXPECT_EQ(sum[1], 0x10);
    EXPECT_EQ(sum[2], 0xfe);

    const int8_t negative[] = {-7, 127, -128};
    const int8_t more[] = {0, 1, -1};
    const void* bytes[] = {negative, more};
    int8_t average[3];
    reduce({DataType::kInt8, Operator::kAvg, 2}, average, bytes, 2, 3);
    EXPECT_EQ(average[0], -3);   // toward zero
    EXPECT_EQ(average[1], -64);  // 127 + 1 wraps first
    EXPECT_EQ(average[2], 63);
  }
}

TEST(Reduce, LargeStreamedArrays) {
  LevelGuard guard;
  const size_t count = 300001;
  std::vector<float> a(count), b(count), dst(count), second(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(3 * i + 1);
  }
  const void* sources[] = {a.data(), b.data()};
  for (const std::string& level : availableLevels()) {
    useLevel(level);
    std::fill(dst.begin(), dst.end(), -1.0f);
    reduceTwo({DataType::kFloat32, Operator::kSum}, dst.data() + 1, second.data(), sources, 2, count - 1,
              true);
    EXPECT_EQ(dst[0], -1.0f);
    for (size_t i = 0; i + 1 < count; ++i) {
      ASSERT_EQ(dst[i + 1], a[i] + b[i]) << level << " element " << i;
      ASSERT_EQ(second[i], a[i] + b[i]) << level << " element " << i;
    }
  }
}

// ---- Choice of the level ----------------------------------------------------------------------------------

TEST(CpuLevel, UnknownNameIsRefusedAndNamesThePossible) {
  LevelGuard guard;
  const std::vector<std::string> levels = availableLevels();
  useLevel(levels.front());
  for (const char* wrong : {"sse9", "AVX2", " "}) {
    setenv("STRETTO_CPU", wrong, 1);
    EXPECT_EQ(selectCpuLevel().code, Code::kInvalidUsage);
    for (const std::string& level : levels)
      EXPECT_NE(lastError().find(level), std::string::npos) << lastError();
    EXPECT_EQ(cpuLevel(), levels.front());  // what was in use stays
  }
}

TEST(CpuLevel, UnavailableLevelIsRefused) {
  LevelGuard guard;
  const std::vector<std::string> levels = availableLevels();
  int refused = 0;
  for (const char* name : {"scalar", "avx2", "avx512", "neon"}) {
    if (std::find(levels.begin(), levels.end(), name) != levels.end()) continue;
    setenv("STRETTO_CPU", name, 1);
    EXPECT_EQ(selectCpuLevel().code, Code::kInvalidUsage);
    ++refused;
  }
  EXPECT_GT(refused, 0);  // no CPU has both neon and avx2
}

TEST(CpuLevel, UnsetChoosesTheBest) {
  LevelGuard guard;
  const std::vector<std::string> levels = availableLevels();
  unsetenv("STRETTO_CPU");
  ASSERT_TRUE(selectCpuLevel().ok());
  EXPECT_EQ(cpuLevel(), levels.back());
}

TEST(CpuLevel, MayBeChosenFromManyThreads) {
  const stretto::testing::Watchdog watchdog("choosing the CPU level", 60);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong] {
      const float a[2] = {1, 2}, b[2] = {3, 4};
      const void* sources[] = {a, b};
      for (int i = 0; i < 1000; ++i) {
        float sum[2] = {};
        if (!selectCpuLevel().ok()) ++wrong;
        reduce({DataType::kFloat32, Operator::kSum}, sum, sources, 2, 2);
        if (sum[0] != 4 || sum[1] != 6) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace stretto
