// Words for people, sent the way the host of the plugin wants them: through NCCL's logger where init brought
// one (v4 and later), through our own log otherwise. Never to stdout, and never on the way of an event. The
// plugin may use this.
#pragma once

#include "profiler/abi.hpp"

namespace stretto::profiler {

[[gnu::format(printf, 3, 4), gnu::cold]] void notice(Logger logger, LogLevel level, const char* format, ...);

}  // namespace stretto::profiler
