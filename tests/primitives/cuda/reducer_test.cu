// The reducers of kernels against the Host backend, bit for bit, on the CPU and on a device.
#include "primitives/cuda/reducer.cuh"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "harness/oracle.hpp"
#include "harness/watchdog.hpp"
#include "primitives/cuda/anywhere.cuh"
#include "primitives/host/reduce.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using cuda::AnyReducer;
using cuda::FixedReducer;
using cuda::ReducerKind;
using cuda::Unit;

constexpr int kMostSources = 8;

// ---- What runs in both places -----------------------------------------------------------------------------

// Units of source s begin at from + s * stride.
template <typename Reducer>
struct ReduceBody {
  ReduceSpec spec;
  const Unit* from;
  size_t stride;
  int sources;
  Unit* to;

  __host__ __device__ void operator()(size_t i) const {
    const Reducer reducer(spec);
    typename Reducer::Accumulator sum = reducer.start(from[i]);
    for (int s = 1; s < sources; ++s) reducer.join(sum, from[s * stride + i]);
    to[i] = reducer.finish(sum);
  }
};

// As kernels for two ranks make it.
template <typename Reducer>
struct OfTwo : Reducer {
  __host__ __device__ explicit OfTwo(const ReduceSpec& spec)
      : Reducer(spec, typename Reducer::template Among<2>{}) {}
};

struct Scalar {
  uint8_t bytes[8];
};

struct ScaleBody {
  DataType type;
  Scalar scalar;
  const Unit* from;
  Unit* to;

  __host__ __device__ void operator()(size_t i) const { to[i] = cuda::scaled(type, from[i], scalar.bytes); }
};

// ---- Inputs and checks ------------------------------------------------------------------------------------

// Mostly what the harness makes; the last quarter has few bits set, so that small exponents, where quotients
// become subnormal, are common.
void fillUnits(DataType type, Unit* units, size_t count, Random& random) {
  fillRandom(type, units, count * sizeof(Unit) / sizeOf(type), random);
  for (size_t i = count - count / 4; i < count; ++i) units[i] = random() & random() & random();
}

std::string describe(const ReduceSpec& spec, int sources, const char* reducer) {
  return std::string(reducer) + " reducer, " + nameOf(spec.type) + " " + nameOf(spec.op) + "/" +
         std::to_string(spec.divisor) + " of " + std::to_string(sources);
}

void expectSame(const Unit* got, const std::vector<Unit>& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(got[i], expected[i]) << std::hex << "unit 0x" << i << " is 0x" << got[i] << ", should be 0x"
                                   << expected[i] << ": " << what;
  }
}

class Reducers : public ::testing::TestWithParam<std::tuple<Place, DataType>> {
 protected:
  Place place() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }
  size_t elements(size_t units) const { return units * sizeof(Unit) / sizeOf(type()); }

  void SetUp() override {
    if (const std::string why = absent(place()); !why.empty()) GTEST_SKIP() << why;
  }

  std::vector<Unit> onHost(const ReduceSpec& spec, const Shared<Unit>& from, size_t stride, int sources) {
    std::vector<const void*> pointers;
    for (int s = 0; s < sources; ++s) pointers.push_back(from.data() + static_cast<size_t>(s) * stride);
    std::vector<Unit> result(stride);
    reduce(spec, result.data(), pointers.data(), sources, elements(stride));
    return result;
  }

  template <typename Reducer>
  void check(const ReduceSpec& spec, const Shared<Unit>& from, size_t stride, int sources,
             const std::vector<Unit>& expected, const char* name) {
    Shared<Unit> to(place(), stride);
    forAll(place(), stride, ReduceBody<Reducer>{spec, from.data(), stride, sources, to.data()});
    expectSame(to.data(), expected, describe(spec, sources, name));
  }

  template <typename Reducer>
  void checkFixed(const ReduceSpec& spec, const Shared<Unit>& from, size_t stride, int sources,
                  const std::vector<Unit>& expected, const std::string& name) {
    check<Reducer>(spec, from, stride, sources, expected, name.c_str());
    const bool isOfTwo = sources == 2 && (spec.op == Operator::kSum || spec.divisor == 2);
    if (isOfTwo) check<OfTwo<Reducer>>(spec, from, stride, sources, expected, (name + " of two").c_str());
  }

  // Every reducer that serves it.
  void checkAll(const ReduceSpec& spec, const Shared<Unit>& from, size_t stride, int sources,
                const std::vector<Unit>& expected) {
    check<AnyReducer>(spec, from, stride, sources, expected, "any");
    switch (cuda::kindOf(spec)) {
      case ReducerKind::kFloat32:
        using Float32 = FixedReducer<DataType::kFloat32, Operator::kSum>;
        return checkFixed<Float32>(spec, from, stride, sources, expected, "float32");
      case ReducerKind::kFloat16:
        using Float16 = FixedReducer<DataType::kFloat16, Operator::kSum>;
        return checkFixed<Float16>(spec, from, stride, sources, expected, "float16");
      case ReducerKind::kBfloat16:
        using Bfloat16 = FixedReducer<DataType::kBfloat16, Operator::kSum>;
        return checkFixed<Bfloat16>(spec, from, stride, sources, expected, "bfloat16");
      case ReducerKind::kAny:
        return;
    }
  }

  std::vector<ReduceSpec> specs() const {
    std::vector<ReduceSpec> all;
    for (const Operator op : {Operator::kSum, Operator::kProd, Operator::kMax, Operator::kMin}) {
      all.push_back({type(), op, 7});  // which divides nothing
    }
    for (const uint32_t divisor : {1u, 2u, 3u, 7u, 8u, 61u, 255u, 256u, 65537u, 0x80000000u, 0xffffffffu}) {
      all.push_back({type(), Operator::kAvg, divisor});
    }
    return all;
  }
};

// ---- Tests ------------------------------------------------------------------------------------------------

TEST_P(Reducers, MatchTheHostBackend) {
  const Watchdog watchdog("reducers against the Host backend", 120);
  constexpr size_t kUnits = 1024;
  Random random(200 + static_cast<int>(type()));
  Shared<Unit> from(place(), kMostSources * kUnits);
  for (int s = 0; s < kMostSources; ++s) fillUnits(type(), from.data() + s * kUnits, kUnits, random);
  for (const ReduceSpec& spec : specs()) {
    for (int sources = 1; sources <= kMostSources; ++sources) {
      const bool copies = sources == 1 && (spec.op != Operator::kAvg || spec.divisor == 1);
      if (copies) continue;  // not a reducer's: see reducer.cuh
      checkAll(spec, from, kUnits, sources, onHost(spec, from, kUnits, sources));
      ASSERT_FALSE(HasFailure());
    }
  }
}

// All pairs of 8-bit patterns, as many random ones of the wider types: ties both ways, subnormals, overflow,
// wrapping.
TEST_P(Reducers, MatchTheHostBackendOnAllPairs) {
  const Watchdog watchdog("pairs against the Host backend", 120);
  constexpr size_t kUnits = 65536 / 8;
  Random random(300 + static_cast<int>(type()));
  Shared<Unit> from(place(), 2 * kUnits);
  for (size_t i = 0; i < 65536; ++i) {
    const uint8_t pair[] = {static_cast<uint8_t>(i % 256), static_cast<uint8_t>(i / 256)};
    for (size_t s = 0; s < 2; ++s) {
      const size_t at = s * kUnits + i / 8;
      from[at] = sizeOf(type()) == 1 ? from[at] | Unit{pair[s]} << (i % 8 * 8) : random();
    }
  }
  for (const ReduceSpec& spec : specs()) {
    checkAll(spec, from, kUnits, 2, onHost(spec, from, kUnits, 2));
    ASSERT_FALSE(HasFailure());
  }
}

// What a reducer does to one source is what the Host backend's multiplication by one does: every pattern
// returns, but for NaNs and, in e5m2, infinities.
TEST_P(Reducers, RoundTripEveryPattern) {
  const Watchdog watchdog("round trips", 60);
  const size_t patterns = sizeOf(type()) == 1 ? 256 : 65536;  // of the wider types, those beyond repeat
  const size_t units = patterns * sizeOf(type()) / sizeof(Unit);
  Random random(400);
  Shared<Unit> from(place(), units);
  for (size_t i = 0; i < patterns; ++i) {
    const uint64_t bits = sizeOf(type()) <= 2 ? i : random();
    memcpy(reinterpret_cast<char*>(from.data()) + i * sizeOf(type()), &bits, sizeOf(type()));
  }
  Unit one = 1;
  if (isFloating(type())) putFloat(type(), &one, 0, 1.0);
  std::vector<Unit> expected(units);
  scale(type(), expected.data(), from.data(), &one, elements(units));
  checkAll({type(), Operator::kSum, 1}, from, units, 1, expected);
  checkAll({type(), Operator::kAvg, 1}, from, units, 1, expected);
}

TEST_P(Reducers, ScaleLikeTheHostBackend) {
  const Watchdog watchdog("scaling", 60);
  constexpr size_t kUnits = 512;
  Random random(500 + static_cast<int>(type()));
  Shared<Unit> from(place(), kUnits);
  Shared<Unit> to(place(), kUnits);
  for (int round = 0; round < 40; ++round) {
    fillUnits(type(), from.data(), kUnits, random);
    Unit factors[16];
    fillUnits(type(), factors, 16, random);
    Scalar scalar;  // beyond the first element it may hold anything
    memcpy(scalar.bytes, &factors[round % 16], sizeof scalar.bytes);
    std::vector<Unit> expected(kUnits);
    scale(type(), expected.data(), from.data(), scalar.bytes, elements(kUnits));
    forAll(place(), kUnits, ScaleBody{type(), scalar, from.data(), to.data()});
    expectSame(to.data(), expected, std::string("scale ") + nameOf(type()));
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Reducers,
                         ::testing::Combine(::testing::Values(Place::kCpu, Place::kDevice),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& suite) {
                           return nameOf(std::get<0>(suite.param)) + "_" + nameOf(std::get<1>(suite.param));
                         });

TEST(ReducerKind, NamesTheReducersThatExist) {
  int fixed = 0;
  for (const DataType type : kTypes) {
    for (int op = 0; op < kOperators; ++op) {
      const ReduceSpec spec{type, static_cast<Operator>(op), 3};
      const ReducerKind kind = cuda::kindOf(spec);
      EXPECT_EQ(kind != ReducerKind::kAny, cuda::isFixed(type, spec.op));
      if (kind == ReducerKind::kAny) continue;
      EXPECT_STREQ(cuda::nameOf(kind), nameOf(type));
      ++fixed;
    }
  }
  EXPECT_EQ(fixed, 6);  // three types, sum and average
}

}  // namespace
}  // namespace stretto
