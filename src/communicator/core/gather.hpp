// One value of every rank, through the control plane. For what makes connections, in this folder.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "bootstrap/membership.hpp"

namespace stretto::communicator {

// The zeros at the end of a value do not travel: what is mostly empty goes last. Every rank hears of every
// other, so that the bytes of many ranks grow with their square.
template <typename T>
Result<std::vector<T>> gather(bootstrap::Membership& membership, const char* name, const T& mine,
                              double timeout) {
  static_assert(std::is_trivially_copyable_v<T>);
  // Bytes between members would travel as they happen to be, with what this process had there before.
  static_assert(std::has_unique_object_representations_v<T>, "name the padding of what travels");
  std::span<const uint8_t> bytes{reinterpret_cast<const uint8_t*>(&mine), sizeof mine};
  while (!bytes.empty() && bytes.back() == 0) bytes = bytes.first(bytes.size() - 1);
  auto blobs = membership.exchange(name, bytes, timeout);
  if (!blobs.ok()) return blobs.status();
  std::vector<T> all(blobs.value().size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto& blob = blobs.value()[rank];
    if (blob.size() > sizeof(T)) {
      return failAbout(static_cast<int>(rank), Code::kInternal,
                       "rank %zu sent %zu bytes for \"%s\", which has %zu", rank, blob.size(), name,
                       sizeof(T));
    }
    std::array<uint8_t, sizeof(T)> whole{};
    std::copy(blob.begin(), blob.end(), whole.begin());
    all[rank] = std::bit_cast<T>(whole);
  }
  return all;
}

}  // namespace stretto::communicator
