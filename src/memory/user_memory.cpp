#include "memory/user_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "memory/freed_mark.hpp"
#include "platform/cuda/device.hpp"
#include "platform/cuda/mapped.hpp"
#include "platform/fork.hpp"
#include "platform/random.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::memory {
namespace {

constexpr size_t kPage = 4096;

struct Allocation {
  platform::SharedMemory memory;
  uint64_t id = 0;  // never the same twice, so that a peer cannot mistake a new segment for an old one
  uint32_t forkGeneration = platform::forkGeneration();
  bool described = false;            // to other processes
  std::vector<const void*> tellers;  // who has done so and is there still

  size_t bytes() const { return memory.size() - kMarkBytes; }
};
// Never destroyed: user threads may still free memory while the process ends.
struct Allocations {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> byAddress;
};
Allocations& allocations() {
  static auto* all = new Allocations;
  return *all;
}

struct Tellers {
  std::mutex mutex;  // held while they tell
  std::unordered_map<const void*, std::function<void()>> all;
};
Tellers& tellers() {
  static auto* instance = new Tellers;
  return *instance;
}

// Unmaps what its user has freed, and lets those know who may have it mapped. A forked child gives up its
// mapping alone: the memory is its parent's to free.
void retire(Allocation last) {
  if (!last.described || last.forkGeneration != platform::forkGeneration()) return;
  markFreed(last.memory, last.id);
  last.memory = {};
  Tellers& here = tellers();
  std::lock_guard lock(here.mutex);
  for (const void* teller : last.tellers) {
    const auto found = here.all.find(teller);
    if (found != here.all.end()) found->second();
  }
}

// Memory of GPUs, by its begin.
struct DeviceAllocation {
  int device = -1;
  platform::cuda::Mapping mapping;  // none if it is cudaMalloc's
};
struct DeviceAllocations {
  std::mutex mutex;
  std::unordered_map<void*, DeviceAllocation> byBegin;
};
DeviceAllocations& deviceAllocations() {
  static auto* all = new DeviceAllocations;
  return *all;
}

// False if it is not ours.
bool releaseOnDevice(void* pointer) {
  DeviceAllocations& all = deviceAllocations();
  DeviceAllocation last;  // freed after the lock is gone
  {
    std::lock_guard lock(all.mutex);
    const auto found = all.byBegin.find(pointer);
    if (found == all.byBegin.end()) return false;
    last = std::move(found->second);
    all.byBegin.erase(found);
  }
  if (last.mapping.data() == nullptr) platform::cuda::release(last.device, static_cast<std::byte*>(pointer));
  return true;
}

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
  if (bytes > SIZE_MAX / 2) {
    return fail(Code::kInvalidArgument, "cannot allocate %zu bytes", bytes);
  }
  const size_t size = (bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage) + kMarkBytes;
  auto memory = platform::SharedMemory::create("stretto-memory", size);
  if (!memory.ok()) {
    STRETTO_LOG(kInfo, kAlloc,
                "%zu bytes of ncclMemAlloc are not shareable (no descriptor left?): other processes "
                "will copy them",
                bytes);
    memory = platform::SharedMemory::createPrivate(size);
  }
  if (!memory.ok()) return memory.status();
  Allocation allocation;
  allocation.memory = std::move(memory.value());
  STRETTO_TRY(fillRandom({reinterpret_cast<uint8_t*>(&allocation.id), sizeof allocation.id}));
  allocation.id |= 1;
  void* const pointer = allocation.memory.data();
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  all.byAddress.emplace(reinterpret_cast<uintptr_t>(pointer), std::move(allocation));
  return pointer;
}

Result<void*> allocateOn(int device, size_t bytes) {
  const size_t size = bytes == 0 ? kPage : bytes;
  DeviceAllocation allocation;
  allocation.device = device;
  std::string why = platform::cuda::whyNotMapped(device);
  if (why.empty()) {
    auto mapping = platform::cuda::allocateMapped(device, size);
    if (mapping.ok()) {
      allocation.mapping = std::move(mapping.value());
    } else {
      why = lastError();
    }
  }
  void* begin = allocation.mapping.data();
  if (begin == nullptr) {
    const auto memory = platform::cuda::allocate(device, size);
    if (!memory.ok()) return memory.status();
    begin = memory.value();
    STRETTO_LOG(kInfo, kAlloc, "%zu bytes of ncclMemAlloc on GPU %d are cudaMalloc's: %s", size, device,
                why.c_str());
  }
  DeviceAllocations& all = deviceAllocations();
  std::lock_guard lock(all.mutex);
  all.byBegin.emplace(begin, std::move(allocation));
  return begin;
}

Status release(void* pointer) {
  if (pointer == nullptr || releaseOnDevice(pointer)) return kOkStatus;
  Allocation last;
  {
    Allocations& all = allocations();
    std::lock_guard lock(all.mutex);
    const auto found = all.byAddress.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == all.byAddress.end()) {
      return fail(Code::kInvalidArgument, "%p was not allocated by ncclMemAlloc, or was freed before",
                  pointer);
    }
    last = std::move(found->second);
    all.byAddress.erase(found);
  }
  retire(std::move(last));
  return kOkStatus;
}

Shareable describe(const void* address, size_t bytes, const void* teller) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  Shareable what;
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  auto found = all.byAddress.upper_bound(begin);
  if (found == all.byAddress.begin()) return what;
  --found;
  auto& [base, allocation] = *found;
  if (begin - base > allocation.bytes() || allocation.bytes() - (begin - base) < bytes) return what;
  if (allocation.memory.descriptor() < 0) return what;
  what.id = allocation.id;
  what.base = base;
  what.bytes = allocation.memory.size();
  what.descriptor = allocation.memory.descriptor();
  if (teller == nullptr) return what;
  allocation.described = true;
  auto& known = allocation.tellers;
  if (std::find(known.begin(), known.end(), teller) == known.end()) known.push_back(teller);
  return what;
}

void onRelease(const void* teller, std::function<void()> notify) {
  Tellers& here = tellers();
  std::lock_guard lock(here.mutex);
  here.all[teller] = std::move(notify);
}

void dropOnRelease(const void* teller) {
  {
    Tellers& here = tellers();
    std::lock_guard lock(here.mutex);
    here.all.erase(teller);
  }
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  for (auto& [base, allocation] : all.byAddress) std::erase(allocation.tellers, teller);
}

void* addRegistration(const void* owner, const void* buffer, size_t bytes) {
  Registrations& all = registrations();
  std::lock_guard lock(all.mutex);
  all.alive.emplace(++all.last, Registration{owner, buffer, bytes});
  return reinterpret_cast<void*>(all.last);
}

Registration findRegistration(const void* handle) {
  Registrations& all = registrations();
  std::lock_guard lock(all.mutex);
  const auto found = all.alive.find(reinterpret_cast<uint64_t>(handle));
  return found == all.alive.end() ? Registration{} : found->second;
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
