#include "memory/user_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace stretto::memory {
namespace {

// Never destroyed: user threads may still free memory while the process ends.
struct Allocations {
  std::mutex mutex;
  std::unordered_map<void*, size_t> sizes;
};
Allocations& allocations() {
  static auto* all = new Allocations;
  return *all;
}

constexpr size_t kPage = 4096;

struct Registration {
  const void* owner;
  const void* buffer;
  size_t bytes;
};
struct Registrations {
  std::mutex mutex;
  uint64_t last = 0;
  std::unordered_map<uint64_t, Registration> alive;
};
Registrations& registrations() {
  static auto* all = new Registrations;
  return *all;
}

}  // namespace

Result<void*> allocate(size_t bytes) {
  if (bytes > SIZE_MAX - kPage) {
    return fail(Code::kInvalidArgument, "cannot allocate %zu bytes", bytes);
  }
  const size_t size = bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage;
  void* pointer = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pointer == MAP_FAILED) {
    return failErrno("cannot allocate %zu bytes", bytes);
  }
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  all.sizes.emplace(pointer, size);
  return pointer;
}

Status release(void* pointer) {
  if (pointer == nullptr) return kOkStatus;
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  const auto found = all.sizes.find(pointer);
  if (found == all.sizes.end()) {
    return fail(Code::kInvalidArgument, "%p was not allocated by ncclMemAlloc, or was freed before", pointer);
  }
  munmap(pointer, found->second);
  all.sizes.erase(found);
  return kOkStatus;
}

void* addRegistration(const void* owner, const void* buffer, size_t bytes) {
  Registrations& all = registrations();
  std::lock_guard lock(all.mutex);
  all.alive.emplace(++all.last, Registration{owner, buffer, bytes});
  return reinterpret_cast<void*>(all.last);
}

bool removeRegistration(const void* owner, void* handle) {
  Registrations& all = registrations();
  std::lock_guard lock(all.mutex);
  const auto found = all.alive.find(reinterpret_cast<uint64_t>(handle));
  if (found == all.alive.end() || found->second.owner != owner) return false;
  all.alive.erase(found);
  return true;
}

void dropRegistrations(const void* owner) {
  Registrations& all = registrations();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.alive, [&](const auto& entry) { return entry.second.owner == owner; });
}

}  // namespace stretto::memory
