// Memory that users ask the library for (ncclMemAlloc) and ranges they register. What allocate() gives is a
// shared segment, so that ranks in other processes can read it in place (imports.hpp); like all shared memory
// it is the same for a forked child, not a copy. allocateOn() gives memory of a GPU, mapped so that it can be
// shared in pieces where that can be (platform/cuda/mapped.hpp), else cudaMalloc's. A registration changes
// nothing; it is checked and undone, so that programs written for NCCL run. Any thread.
#pragma once

#include <cstddef>
#include <functional>

#include "base/shareable.hpp"
#include "base/status.hpp"

namespace stretto::memory {

// Page-aligned, zeroed, at least `bytes` long; 0 bytes is allowed and gives one page.
Result<void*> allocate(size_t bytes);
// The same on a GPU, aligned as its driver does.
Result<void*> allocateOn(int device, size_t bytes);
// kInvalidArgument unless `pointer` came from either and was not released before; null is ignored. Of a GPU's
// memory: once nothing uses it, as NCCL has it, for mapped memory goes without waiting.
Status release(void* pointer);

// What the range is in, if it lies in one allocation of this process; else `id` 0. `teller`, if not null, is
// about to tell other ranks; whoever has been one ends with dropOnRelease().
Shareable describe(const void* address, size_t bytes, const void* teller = nullptr);
// When memory is released that `teller` has described, it is marked for those who have it mapped, and `tell`
// is called on the thread that releases it, after it is gone: it must be quick and must not come back here.
void onRelease(const void* teller, std::function<void()> notify);
// It is not called any more once this has returned.
void dropOnRelease(const void* teller);

// A registration of [`buffer`, +`bytes`) with `owner`; the handle is opaque and never null.
void* addRegistration(const void* owner, const void* buffer, size_t bytes);
struct Registration {
  const void* owner;
  const void* buffer;
  size_t bytes;
};
// What was registered as `handle`; an owner of null if that is no registration.
Registration findRegistration(const void* handle);
// False if `handle` is not a registration of `owner`.
bool removeRegistration(const void* owner, void* handle);
// The owner is gone, and its registrations with it.
void dropRegistrations(const void* owner);

}  // namespace stretto::memory
