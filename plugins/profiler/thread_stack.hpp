// Ids of events that one thread has open, for interfaces that want pushes and pops in pairs. Bounded; no
// allocation.
#pragma once

#include <cstdint>

namespace stretto::profiler {

template <int kDepth>
class ThreadStack {
 public:
  // False when it is full; what would be pushed then has to be left out.
  bool push(uint64_t id) {
    if (depth_ == kDepth) return false;
    ids_[depth_++] = id;
    return true;
  }
  bool isFull() const { return depth_ == kDepth; }
  // Takes off `id` and what lies above it; returns how many that are, 0 when it is not there.
  int popTo(uint64_t id) {
    for (int i = depth_; i-- > 0;) {
      if (ids_[i] != id) continue;
      const int count = depth_ - i;
      depth_ = i;
      return count;
    }
    return 0;
  }

 private:
  uint64_t ids_[kDepth] = {};
  int depth_ = 0;
};

}  // namespace stretto::profiler
