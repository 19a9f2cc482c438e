// One value of every rank, through the control plane. For what makes connections, in this folder.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "bootstrap/membership.hpp"

namespace stretto::communicator {

// One value of each rank. It holds the bytes that came, which are shorter than the values and shared by the
// ranks of a process; operator[] makes a value of them each time.
template <typename T>
class PerRank {
 public:
  class Iterator {
   public:
    Iterator(const PerRank& all, size_t rank) : all_(&all), rank_(rank) {}
    T operator*() const { return (*all_)[rank_]; }
    Iterator& operator++() {
      ++rank_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return rank_ == other.rank_; }

   private:
    const PerRank* all_;
    size_t rank_;
  };

  PerRank() = default;
  // None of the parts is longer than a value.
  explicit PerRank(bootstrap::Membership::Parts parts) : parts_(std::move(parts)) {}

  size_t size() const { return parts_.size(); }
  T operator[](size_t rank) const {
    const auto part = parts_[rank];
    std::array<uint8_t, sizeof(T)> whole{};
    std::copy(part.begin(), part.end(), whole.begin());
    return std::bit_cast<T>(whole);
  }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }
  // For who looks at them often.
  std::vector<T> all() const {
    std::vector<T> values(size());
    for (size_t rank = 0; rank < values.size(); ++rank) values[rank] = (*this)[rank];
    return values;
  }

 private:
  bootstrap::Membership::Parts parts_;
};

// The zeros at the end of a value do not travel: what is mostly empty goes last. Every rank hears of every
// other, so that the bytes of many ranks grow with their square.
template <typename T>
Result<PerRank<T>> gather(bootstrap::Membership& membership, const char* name, const T& mine,
                          double timeout) {
  static_assert(std::is_trivially_copyable_v<T>);
  // Bytes between members would travel as they happen to be, with what this process had there before.
  static_assert(std::has_unique_object_representations_v<T>, "name the padding of what travels");
  std::span<const uint8_t> bytes{reinterpret_cast<const uint8_t*>(&mine), sizeof mine};
  while (!bytes.empty() && bytes.back() == 0) bytes = bytes.first(bytes.size() - 1);
  auto parts = membership.exchange(name, bytes, timeout);
  if (!parts.ok()) return parts.status();
  for (size_t rank = 0; rank < parts.value().size(); ++rank) {
    const size_t length = parts.value()[rank].size();
    if (length > sizeof(T)) {
      return failAbout(static_cast<int>(rank), Code::kInternal,
                       "rank %zu sent %zu bytes for \"%s\", which has %zu", rank, length, name, sizeof(T));
    }
  }
  return PerRank<T>(std::move(parts.value()));
}

// Ranks tell one another how they have failed. If a rank failed because another one is lost, the lost rank is
// named and not the one that found it. What travels is the lost rank's number plus 1; 0 is none.
inline uint16_t lostOf(Status status) {
  return static_cast<uint16_t>(status.code == Code::kRemote ? status.peer + 1 : 0);
}
// The rank to name for what rank `teller` of `ranks` has told.
inline int namedBy(uint16_t lost, size_t teller, size_t ranks) {
  return static_cast<int>(lost >= 1 && lost <= ranks ? lost - size_t{1} : teller);
}

}  // namespace stretto::communicator
