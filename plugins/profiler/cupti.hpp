// CUPTI's external correlation ids around kernel launches, so that whoever records GPU activity (Kineto,
// Nsight Systems, a program's own CUPTI) can find the operation that a kernel belongs to: the id that is
// pushed is the KernelLaunch event's. CUPTI is found at run time; nothing here needs it to build. Used by
// extras.cpp.
#pragma once

#include "profiler/abi.hpp"

namespace stretto::profiler::cupti {

// False, and a word to the logger, when there is no CUPTI.
bool prepare(Logger logger);
void push(uint64_t id);
// Of the thread's ids, takes off those from `id` on; nothing when that was pushed elsewhere.
void pop(uint64_t id);

}  // namespace stretto::profiler::cupti
