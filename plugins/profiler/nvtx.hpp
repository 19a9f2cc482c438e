// NVTX ranges in domain "Stretto" around what a thread does between start and stop of the events that nest on
// it: group and operation API calls, enqueuing, launches. For tools that listen (Nsight Systems, Score-P).
// Needs NVTX's headers when it is built (package nvidia-nvtx, or CUDA's toolkit); without them prepare() says
// so. Used by extras.cpp.
#pragma once

#include "profiler/abi.hpp"

namespace stretto::profiler::nvtx {

// False, and a word to the logger, when the plugin was built without NVTX.
bool prepare(Logger logger);
void start(Type type, uint64_t id, const char* label);
void stop(uint64_t id);

}  // namespace stretto::profiler::nvtx
