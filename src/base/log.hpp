// Log lines, by NCCL's own switches: NCCL_DEBUG chooses the level (none, VERSION, WARN, INFO, TRACE),
// NCCL_DEBUG_SUBSYS the subsystems ("INIT,COLL", "^NET", "ALL"), NCCL_DEBUG_FILE the file (%h host,
// %p pid). Without a file, lines go to stderr: the library never writes to stdout.
#pragma once

namespace stretto::log {

enum class Level : int { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 5 };
enum class Subsystem : unsigned {
  kInit = 1,
  kColl = 2,
  kP2p = 4,
  kShm = 8,
  kNet = 16,
  kGraph = 32,
  kTuning = 64,
  kEnv = 128,
  kAlloc = 256,
  kProfile = 0x4000,
  kAll = ~0u
};

bool enabled(Level level, Subsystem subsystem);
[[gnu::format(printf, 3, 4), gnu::cold]] void write(Level level, Subsystem subsystem, const char* format,
                                                    ...);
// Reads the switches again (ncclResetDebugInit; tests).
void reset();

}  // namespace stretto::log

// Costs one load and a branch when off.
#define STRETTO_LOG(level, subsystem, ...)                                                           \
  do {                                                                                               \
    if (::stretto::log::enabled(::stretto::log::Level::level, ::stretto::log::Subsystem::subsystem)) \
      ::stretto::log::write(::stretto::log::Level::level, ::stretto::log::Subsystem::subsystem,      \
                            __VA_ARGS__);                                                            \
  } while (false)
