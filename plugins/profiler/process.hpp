// The one recorder of a process, from the first init to the end, over forks; and what every ABI family's init
// and finalize do with it. Called by the plugin_v*.cpp files.
#pragma once

#include "profiler/recorder.hpp"

namespace stretto::profiler {

// Decides whether to record, opens the communicator, says the mask. Never fails: where nothing can be
// recorded the mask is 0, the context null, and the logger says why. `caller` is an address in the library
// that calls.
void initContext(void** context, int* mask, const ContextFacts& facts, Logger logger, const void* caller);
void sampleContext(void* context, uint64_t every);
void finalizeContext(void* context);

}  // namespace stretto::profiler
