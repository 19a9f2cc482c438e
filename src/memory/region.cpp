#include "memory/region.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace stretto::memory {
namespace {

// Regions of this process by token. Never destroyed: communicators may be, after static objects were.
struct Regions {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<Region>> byToken;
};
Regions& regions() {
  static auto* all = new Regions;
  return *all;
}

}  // namespace

Region::~Region() {
  std::lock_guard lock(regions().mutex);
  regions().byToken.erase(token_);
}

Result<std::shared_ptr<Region>> Region::create(const char* label, size_t bytes, uint64_t token) {
  auto memory = platform::SharedMemory::create(label, bytes);
  if (!memory.ok()) return memory.status();
  std::shared_ptr<Region> region(new Region(std::move(memory.value()), token));
  std::lock_guard lock(regions().mutex);
  regions().byToken.emplace(token, region);
  return region;
}

std::shared_ptr<Region> Region::find(uint64_t token) {
  std::lock_guard lock(regions().mutex);
  const auto found = regions().byToken.find(token);
  return found == regions().byToken.end() ? nullptr : found->second.lock();
}

}  // namespace stretto::memory
