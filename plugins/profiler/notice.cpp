#include "profiler/notice.hpp"

#include <cstdarg>
#include <cstdio>

#include "base/log.hpp"

namespace stretto::profiler {

void notice(Logger logger, LogLevel level, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (logger != nullptr) {
    logger(static_cast<int>(level), kProfileSubsystem, "profiler-stretto", 0, "PROFILER/Stretto: %s", text);
    return;
  }
  const auto ours = level == LogLevel::kWarn ? log::Level::kWarn : log::Level::kInfo;
  if (log::enabled(ours, log::Subsystem::kInit)) {
    log::write(ours, log::Subsystem::kInit, "PROFILER/Stretto: %s", text);
  }
}

}  // namespace stretto::profiler
