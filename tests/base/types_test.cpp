#include "base/types.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace stretto {
namespace {

TEST(Types, HaveTheirSizes) {
  constexpr std::array<size_t, kDataTypes> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (int type = 0; type < kDataTypes; ++type) {
    EXPECT_EQ(sizeOf(static_cast<DataType>(type)), kSizes[static_cast<size_t>(type)])
        << nameOf(static_cast<DataType>(type));
  }
}

template <typename T>
void expectNamesDiffer(int count) {
  std::set<std::string> names;
  for (int value = 0; value < count; ++value) {
    EXPECT_TRUE(names.insert(nameOf(static_cast<T>(value))).second) << value;
  }
}

TEST(Types, HaveNamesOfTheirOwn) {
  expectNamesDiffer<DataType>(kDataTypes);
  expectNamesDiffer<Operator>(kOperators);
  expectNamesDiffer<Collective>(kCollectives);
  EXPECT_STREQ(nameOf(DataType::kFloat8e5m2), "float8e5m2");
  EXPECT_STREQ(nameOf(Operator::kAvg), "avg");
  EXPECT_STREQ(nameOf(Collective::kReceive), "receive");
}

}  // namespace
}  // namespace stretto
