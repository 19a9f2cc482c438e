#include "platform/kept_memory.hpp"

#include <algorithm>
#include <iterator>

namespace stretto::platform {

KeptMemory& KeptMemory::ofProcess() {
  static auto* const one = new KeptMemory;
  return *one;
}

void KeptMemory::allocated(const KeptBlock& block) {
  const std::lock_guard lock(mutex_);
  handedOut_[block.address] = block;
}

std::byte* KeptMemory::take(int device, KeptBlock::Kind kind, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const KeptBlock& block) {
    return block.device == device && block.kind == kind && block.bytes == bytes;
  });
  if (found == kept_.end()) return nullptr;
  std::byte* const address = found->address;
  handedOut_[address] = *found;
  kept_.erase(found);
  return address;
}

bool KeptMemory::keep(std::byte* address) {
  const std::lock_guard lock(mutex_);
  const auto found = handedOut_.find(address);
  if (found == handedOut_.end()) return false;
  const KeptBlock block = found->second;
  handedOut_.erase(found);
  const auto sharers = sharers_.find(block.device);
  if (sharers == sharers_.end()) return false;
  kept_.push_back(block);
  return true;
}

void KeptMemory::share(int device) {
  const std::lock_guard lock(mutex_);
  ++sharers_[device];
}

std::vector<KeptBlock> KeptMemory::unshare(int device) {
  const std::lock_guard lock(mutex_);
  if (--sharers_[device] > 0) return {};
  sharers_.erase(device);
  const auto others = std::partition(kept_.begin(), kept_.end(),
                                     [&](const KeptBlock& block) { return block.device == device; });
  std::vector<KeptBlock> gone(std::make_move_iterator(kept_.begin()), std::make_move_iterator(others));
  kept_.erase(kept_.begin(), others);
  return gone;
}

}  // namespace stretto::platform
