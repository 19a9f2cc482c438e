// Calls that are another NCCL's to answer. A process may have NVIDIA's beside this library: the one that
// communicators were handed over to, or one that the program loaded itself. The dynamic linker may bind what
// that one calls of its own exported functions to the functions of this library, when they come first in the
// process; RTLD_DEEPBIND prevents it only for a file that was not loaded before. So every entry point of
// nccl.h begins with one of the two macros below. A call is the other's
//   1. when it comes with a handle that this library did not make, or
//   2. when it comes without one, from the other's code or from a thread that is inside one of its functions.
#pragma once

#include "api/handles.hpp"
#include "memory/user_memory.hpp"

namespace stretto::api {

// Both give the function `name` of the other NCCL when the call is its to answer, else null. `caller` is the
// return address of the entry point.
void* elsewhere(const char* name, const void* caller) noexcept;
void* elsewhereWithForeign(const char* name, const void* handle, const void* caller) noexcept;

// One overload for each type of handle.
inline void* elsewhere(const char* name, const ncclComm* handle, const void* caller) noexcept {
  if (owns(handle)) [[likely]] {
    return nullptr;
  }
  return elsewhereWithForeign(name, handle, caller);
}

// Windows of a communicator that was handed over are the other's, too.
inline void* elsewhere(const char* name, ncclWindow_t handle, const void* caller) noexcept {
  if (memory::findRegistration(handle).owner != nullptr) return nullptr;
  return elsewhereWithForeign(name, handle, caller);
}

}  // namespace stretto::api

// The first statement of the entry point `name`: returns what the other NCCL answers, if the call is for it.
// `arguments` are those of the entry point, in parentheses.
#define STRETTO_PASS_ON_TO(found, name, arguments)                  \
  if (void* const theirs = found; theirs != nullptr) [[unlikely]] { \
    return reinterpret_cast<decltype(&::name)>(theirs) arguments;   \
  }                                                                 \
  static_assert(true)
#define STRETTO_PASS_ON(name, handle, arguments) \
  STRETTO_PASS_ON_TO(stretto::api::elsewhere(#name, handle, __builtin_return_address(0)), name, arguments)
// For one that has no handle among its arguments.
#define STRETTO_PASS_ON_CALLER(name, arguments) \
  STRETTO_PASS_ON_TO(stretto::api::elsewhere(#name, __builtin_return_address(0)), name, arguments)
