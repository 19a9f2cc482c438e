#include "memory/region.hpp"

#include <utility>

#include "memory/by_token.hpp"

namespace stretto::memory {

Region::~Region() {
  ByToken<Region>::all().remove(token_);
}

Result<std::shared_ptr<Region>> Region::create(const char* label, size_t bytes, uint64_t token) {
  auto memory = platform::SharedMemory::create(label, bytes);
  if (!memory.ok()) return memory.status();
  std::shared_ptr<Region> region(new Region(std::move(memory.value()), token));
  ByToken<Region>::all().add(token, region);
  return region;
}

std::shared_ptr<Region> Region::find(uint64_t token) {
  return ByToken<Region>::all().find(token);
}

}  // namespace stretto::memory
