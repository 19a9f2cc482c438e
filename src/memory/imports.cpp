#include "memory/imports.hpp"

#include <algorithm>

namespace stretto::memory {

const std::byte* Imports::map(int peer, int process, const Shareable& what) {
  const uint64_t offset = what.address - what.base;
  if (what.address < what.base || offset > what.bytes) {
    (void)failAbout(peer, Code::kInternal, "rank %d described a buffer outside its own segment", peer);
    return nullptr;
  }
  const auto same = [&](const Mapping& mapping) { return mapping.peer == peer && mapping.id == what.id; };
  const auto known = std::find_if(mappings_.begin(), mappings_.end(), same);
  if (known != mappings_.end() && known->memory.size() == what.bytes) {
    mappings_.splice(mappings_.begin(), mappings_, known);
    return mappings_.front().memory.data() + offset;
  }
  auto opened = platform::SharedMemory::open(process, static_cast<int>(what.descriptor), what.bytes);
  if (!opened.ok()) return nullptr;
  if (mappings_.size() == kKept) mappings_.pop_back();
  mappings_.push_front({peer, what.id, std::move(opened.value())});
  return mappings_.front().memory.data() + offset;
}

}  // namespace stretto::memory
