// In a build without CUDA there is no device memory.
#include "../memory.hpp"

namespace hostile {

std::unique_ptr<Memory> deviceMemory() {
  return nullptr;
}

}  // namespace hostile
