// What the plugin does at an event besides recording it, when it is asked to: pass it on to a second plugin,
// open an NVTX range, push a CUPTI correlation id. All of it is off the recorder's way; a writer's extras()
// says which are on. The ABI families (callbacks.hpp) call start, stop and state with what they were called
// with.
#pragma once

#include <cstdint>

#include "profiler/definitions.hpp"
#include "profiler/settings.hpp"

namespace stretto::profiler::extras {

// Gets ready what the settings ask for, and says (to `logger`) what cannot be had. Returns the Extra bits
// that are on.
uint8_t prepare(const Settings& settings, Logger logger);

struct Started {
  int abi;
  Type type;
  uint64_t id;
  void* context;
  const void* descriptor;
  size_t bytes;       // of the descriptor
  const char* label;  // for people
};
void start(uint8_t which, const Started& event);
void stop(uint8_t which, uint64_t id);
void state(uint8_t which, uint64_t id, int state, void* arguments);

}  // namespace stretto::profiler::extras
