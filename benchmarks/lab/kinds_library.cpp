// The lab's baselines (kinds.hpp) for ranks that are written in Python: three functions of C, which
// python/stretto/lab/backends.py calls.
#include <memory>

#include "kinds.hpp"

using stretto::bench::findKind;
using stretto::bench::KindOfAllReduce;

#define STRETTO_LAB_EXPORT extern "C" __attribute__((visibility("default")))

// Returns when all ranks have come; null if one has not within a minute, or there is no such kind.
STRETTO_LAB_EXPORT void* strettoLabOpen(const char* kind, const char* name, int rank, int ranks,
                                        size_t maxBytes) {
  const auto* found = findKind(kind);
  if (found == nullptr) return nullptr;
  auto made = std::make_unique<KindOfAllReduce>(*found, name, rank, ranks, maxBytes);
  return made->isReady() ? made.release() : nullptr;
}

// In place; 0 when it is done.
STRETTO_LAB_EXPORT int strettoLabAllReduce(void* opened, float* data, size_t count) {
  return static_cast<KindOfAllReduce*>(opened)->allReduce(data, data, count) ? 0 : 1;
}

STRETTO_LAB_EXPORT void strettoLabClose(void* opened) {
  delete static_cast<KindOfAllReduce*>(opened);
}
