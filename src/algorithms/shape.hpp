// All arithmetic on chunks and shards, so that algorithms contain none. Every rank computes the same shape
// from the same numbers.
#pragma once

#include <algorithm>
#include <cstddef>

namespace stretto::algorithms {

// A run of elements.
struct Span {
  size_t begin = 0;
  size_t size = 0;
};

// `count` elements cut into `parts`: equal parts of a multiple of `grain` elements, the last ones shorter or
// empty.
class Split {
 public:
  constexpr Split(size_t count, size_t parts, size_t grain = 1)
      : Split(count, roundUp((count + parts - 1) / parts, grain), Each{}) {}
  // Parts of so many elements each.
  static constexpr Split ofEach(size_t count, size_t each) { return {count, each, Each{}}; }
  constexpr Span operator[](size_t part) const {
    const size_t begin = std::min(count_, part * each_);
    return {begin, std::min(count_, begin + each_) - begin};
  }
  // Elements of the largest part.
  constexpr size_t each() const { return each_; }

 private:
  struct Each {};
  constexpr Split(size_t count, size_t each, Each) : count_(count), each_(each) {}
  static constexpr size_t roundUp(size_t value, size_t grain) { return (value + grain - 1) / grain * grain; }
  size_t count_;
  size_t each_;
};

// `count` elements taken `most` at a time: a range for `for`. As many chunks as `largest` elements would
// make, if these are more: the last ones are empty.
class Chunks {
 public:
  constexpr Chunks(size_t count, size_t most, size_t largest = 0)
      : count_(count), most_(std::max<size_t>(1, most)), longest_(std::max(count, largest)) {}
  constexpr size_t size() const {
    return longest_ <= most_ ? (longest_ != 0) : (longest_ + most_ - 1) / most_;
  }
  constexpr Span operator[](size_t index) const {
    const size_t begin = std::min(count_, index * most_);
    return {begin, std::min(most_, count_ - begin)};
  }

  struct Iterator {
    const Chunks* chunks;
    size_t index;
    constexpr Span operator*() const { return (*chunks)[index]; }
    constexpr Iterator& operator++() {
      ++index;
      return *this;
    }
    constexpr bool operator!=(const Iterator& other) const { return index != other.index; }
  };
  constexpr Iterator begin() const { return {this, 0}; }
  constexpr Iterator end() const { return {this, size()}; }

 private:
  size_t count_;
  size_t most_;
  size_t longest_;
};

// Elements that fit in `bytes`, at least one.
constexpr size_t elementsIn(size_t bytes, size_t elementBytes) {
  return std::max<size_t>(1, bytes / elementBytes);
}

// Shards start on cache lines where the buffer does.
constexpr size_t lineGrain(size_t elementBytes) {
  return std::max<size_t>(1, 64 / elementBytes);
}

// Peers of `rank` in rotated order, so that not everybody talks to rank 0 first: step 0 .. ranks.
constexpr int rotated(int rank, int step, int ranks) {
  const int sum = rank + step;
  return sum < ranks ? sum : sum - ranks;  // a division takes long on a GPU
}

}  // namespace stretto::algorithms
