// NCCL's profiler plugin interface as a plugin sees it: what all versions share and versions 5 to 7 come from
// the host's side (observe/profiler_abi.hpp), which Stretto calls plugins through; versions 1 to 4, which it
// never calls, are declared in abi_v*.hpp. Plugins and their tests may include this.
#pragma once

#include "observe/profiler_abi.hpp"

namespace stretto::profiler {

using namespace observe::profiler;

using InitV1 = int (*)(void** context, int* mask);
using InitV4 = int (*)(void** context, int* mask, const char* name, uint64_t communicator, int nodes,
                       int ranks, int rank, Logger logger);
}  // namespace stretto::profiler

// Begins the definition of a table. In this form, without braces around it, a constant is not internal to its
// file.
#define STRETTO_PROFILER_EXPORT extern "C" __attribute__((visibility("default"))) const
