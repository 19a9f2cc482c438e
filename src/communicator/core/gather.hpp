// One value of every rank, through the control plane. For what makes connections, in this folder.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "bootstrap/membership.hpp"

namespace stretto::communicator {

template <typename T>
Result<std::vector<T>> gather(bootstrap::Membership& membership, const char* name, const T& mine,
                              double timeout) {
  static_assert(std::is_trivially_copyable_v<T>);
  // Bytes between members would travel as they happen to be, with what this process had there before.
  static_assert(std::has_unique_object_representations_v<T>, "name the padding of what travels");
  auto blobs = membership.exchange(name, {reinterpret_cast<const uint8_t*>(&mine), sizeof mine}, timeout);
  if (!blobs.ok()) return blobs.status();
  std::vector<T> all(blobs.value().size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto& blob = blobs.value()[rank];
    if (blob.size() != sizeof(T)) {
      return failAbout(static_cast<int>(rank), Code::kInternal, "rank %zu sent %zu bytes for \"%s\", not %zu",
                       rank, blob.size(), name, sizeof(T));
    }
    std::memcpy(&all[rank], blob.data(), sizeof(T));
  }
  return all;
}

}  // namespace stretto::communicator
