// A stable sort for whoever needs one. Under libstdc++ 12 std::stable_sort is a warning of newer clangs,
// since it takes its buffer from a function that C++17 deprecates. Any folder may include this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace stretto {

// Sorts by `less`; what is equal stays in its order.
template <typename T, typename Less>
void sortStably(std::vector<T>& all, Less less) {
  std::vector<std::pair<T, size_t>> placed;
  placed.reserve(all.size());
  for (T& one : all) placed.emplace_back(std::move(one), placed.size());
  std::sort(placed.begin(), placed.end(), [&](const auto& a, const auto& b) {
    if (less(a.first, b.first)) return true;
    return !less(b.first, a.first) && a.second < b.second;
  });
  for (size_t place = 0; place < placed.size(); ++place) all[place] = std::move(placed[place].first);
}

}  // namespace stretto
