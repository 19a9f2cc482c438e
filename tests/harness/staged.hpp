// Buffers of a call, as its rank has them: in host memory, or as copies on the rank's GPU, which come back
// with what the call has written.
#pragma once

#include <utility>
#include <vector>

#include "harness/guarded.hpp"
#include "harness/ranks.hpp"

namespace stretto::testing {

class Staged {
 public:
  explicit Staged(const Member& member) : member_(member) {}

  // The place of `host`, which holds `bytes`; the same place again for the same memory. `guard`: so many
  // bytes on either side belong to it.
  template <typename T>
  T* of(T* host, size_t bytes, size_t guard = 0) {
    if (host == nullptr || bytes == 0 || member_.device == nullptr) return host;
    auto* const data = reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(host));
    for (const Copy& copy : copies_) {
      if (copy.host == data - guard) return reinterpret_cast<T*>(copy.device + guard);
    }
    char* const place = member_.device->at(copies_.size() % 2, data - guard) + used_[copies_.size() % 2];
    used_[copies_.size() % 2] += (bytes + 2 * guard + 255) / 128 * 128;
    copies_.push_back({data - guard, place, bytes + 2 * guard});
    member_.device->upload(place, data - guard, bytes + 2 * guard);
    return reinterpret_cast<T*>(place + guard);
  }

  // Makes the call, which takes places of the above, and brings everything back.
  template <typename Call>
  bool run(Call call) {
    if (member_.device == nullptr) return call(cudaStream_t{nullptr});
    const auto enqueue = [&] { return call(member_.stream()); };
    const auto meet = [&] { return member_.check(member_.board.meet(), "a rank left during a case"); };
    const bool called = testsInGraphs() ? member_.device->inGraph(enqueue, 1, meet) : enqueue();
    member_.device->synchronize();
    ncclResult_t later = ncclSuccess;
    if (!called || !member_.expect(ncclCommGetAsyncError(member_.comm, &later), "ncclCommGetAsyncError") ||
        !member_.expect(later, "the call")) {
      return false;
    }
    for (const Copy& copy : copies_) member_.device->download(copy.host, copy.device, copy.bytes);
    return true;
  }

 private:
  struct Copy {
    char* host;
    char* device;
    size_t bytes;
  };

  const Member& member_;
  std::vector<Copy> copies_;
  size_t used_[2] = {};
};

}  // namespace stretto::testing
