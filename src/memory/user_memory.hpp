// Memory that users ask the library for (ncclMemAlloc) and ranges they register. On the host a registration
// changes nothing about speed; it is checked, counted and undone, so that programs written for NCCL run.
// Any thread.
#pragma once

#include <cstddef>

#include "base/status.hpp"

namespace stretto::memory {

// Page-aligned, zeroed, at least `bytes` long; 0 bytes is allowed and gives one page.
Result<void*> allocate(size_t bytes);
// kInvalidArgument unless `pointer` came from allocate() and was not released before; null is ignored.
Status release(void* pointer);

// A registration of [`buffer`, +`bytes`) with `owner`; the handle is opaque and never null.
void* addRegistration(const void* owner, const void* buffer, size_t bytes);
// False if `handle` is not a registration of `owner`.
bool removeRegistration(const void* owner, void* handle);
// The owner is gone, and its registrations with it.
void dropRegistrations(const void* owner);

}  // namespace stretto::memory
