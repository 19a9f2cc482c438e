#include "communicator/core/operators.hpp"

#include <algorithm>

namespace stretto::communicator {

int Operators::add(DataType type, const void* scalar, bool immediate) {
  PreMultiplier entry;
  entry.type = type;
  entry.alive = true;
  entry.place = immediate ? nullptr : scalar;
  if (immediate) std::copy_n(static_cast<const uint8_t*>(scalar), sizeOf(type), entry.scalar);
  const std::lock_guard lock(mutex_);
  const auto free = std::find_if(all_.begin(), all_.end(), [](auto& one) { return !one.alive; });
  if (free != all_.end()) {
    *free = entry;
    return static_cast<int>(free - all_.begin());
  }
  all_.push_back(entry);
  return static_cast<int>(all_.size() - 1);
}

std::optional<PreMultiplier> Operators::find(int index) const {
  const std::lock_guard lock(mutex_);
  const bool known = index >= 0 && static_cast<size_t>(index) < all_.size();
  if (!known || !all_[static_cast<size_t>(index)].alive) return std::nullopt;
  return all_[static_cast<size_t>(index)];
}

Status Operators::remove(int index) {
  if (!find(index)) {
    return fail(Code::kInvalidArgument, "operator %d is not a PreMulSum of this communicator", index);
  }
  const std::lock_guard lock(mutex_);
  all_[static_cast<size_t>(index)].alive = false;
  return kOkStatus;
}

}  // namespace stretto::communicator
