#include "base/stable_sort.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace stretto {
namespace {

TEST(StableSort, KeepsTheOrderOfEquals) {
  std::vector<std::pair<int, int>> all;
  for (int i = 0; i < 1000; ++i) all.push_back({i * 7919 % 10, i});
  sortStably(all, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 1; i < all.size(); ++i) {
    ASSERT_GE(all[i - 1].first, all[i].first);
    ASSERT_TRUE(all[i - 1].first != all[i].first || all[i - 1].second < all[i].second);
  }
}

TEST(StableSort, MovesWhatCannotBeCopied) {
  std::vector<std::unique_ptr<std::string>> all;
  for (const char* word : {"c", "a", "b"}) all.push_back(std::make_unique<std::string>(word));
  sortStably(all, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_EQ(*all[0] + *all[1] + *all[2], "abc");
  all.clear();
  sortStably(all, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_TRUE(all.empty());
}

}  // namespace
}  // namespace stretto
