#include "base/log.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

#include "base/names.hpp"
#include "base/os.hpp"

namespace stretto::log {
namespace {

struct Settings {
  Level level = Level::kNone;
  unsigned subsystems = static_cast<unsigned>(Subsystem::kInit) | static_cast<unsigned>(Subsystem::kEnv);
  std::string path;  // empty: stderr
};

// Level and mask packed into one word, so that enabled() is one load. Zero bits 0..7 mean "not read yet".
std::atomic<uint64_t> gPacked{0};
std::mutex gMutex;
FILE* gFile = nullptr;

Level parseLevel(const char* text) {
  if (text == nullptr) return Level::kNone;
  if (equalsIgnoringCase(text, "VERSION")) return Level::kVersion;
  if (equalsIgnoringCase(text, "WARN")) return Level::kWarn;
  if (equalsIgnoringCase(text, "INFO")) return Level::kInfo;
  if (equalsIgnoringCase(text, "TRACE")) return Level::kTrace;
  return Level::kNone;
}

unsigned subsystemBit(std::string_view name) {
  static constexpr std::pair<std::string_view, Subsystem> kNames[] = {
      {"INIT", Subsystem::kInit},       {"COLL", Subsystem::kColl},     {"P2P", Subsystem::kP2p},
      {"SHM", Subsystem::kShm},         {"NET", Subsystem::kNet},       {"GRAPH", Subsystem::kGraph},
      {"ENV", Subsystem::kEnv},         {"TUNING", Subsystem::kTuning}, {"ALLOC", Subsystem::kAlloc},
      {"PROFILE", Subsystem::kProfile}, {"ALL", Subsystem::kAll}};
  for (const auto& [known, bit] : kNames) {
    if (known == name) return static_cast<unsigned>(bit);
  }
  return 0;
}

unsigned parseSubsystems(const char* text, unsigned fallback) {
  if (text == nullptr || *text == 0) return fallback;
  const bool inverted = *text == '^';
  std::string_view rest(text + (inverted ? 1 : 0));
  unsigned mask = 0;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    mask |= subsystemBit(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return inverted ? ~mask : mask;
}

std::string expandPath(const char* pattern) {
  std::string path;
  for (const char* at = pattern; *at != 0; ++at) {
    if (at[0] == '%' && at[1] == 'p') {
      path += std::to_string(os::processId());
      ++at;
    } else if (at[0] == '%' && at[1] == 'h') {
      char host[256];
      path += os::hostName(host, sizeof host) ? host : "unknown";
      ++at;
    } else {
      path += *at;
    }
  }
  return path;
}

uint64_t load() {
  std::lock_guard lock(gMutex);
  if (const uint64_t packed = gPacked.load(); packed != 0) return packed;
  Settings settings;
  settings.level = parseLevel(getenv("NCCL_DEBUG"));
  settings.subsystems = parseSubsystems(getenv("NCCL_DEBUG_SUBSYS"), settings.subsystems);
  if (const char* pattern = getenv("NCCL_DEBUG_FILE"); pattern != nullptr && gFile == nullptr) {
    const std::string path = expandPath(pattern);
    gFile = os::openFile(path, os::Access::kAppend);
    if (gFile == nullptr && settings.level != Level::kNone) {
      fprintf(stderr, "STRETTO WARN NCCL_DEBUG_FILE=%s cannot be opened (%s): the log goes to stderr\n",
              path.c_str(), errno == ENXIO ? "a pipe that nobody reads" : strerror(errno));
    }
  }
  const uint64_t packed =
      (static_cast<uint64_t>(settings.subsystems) << 8) | (static_cast<uint64_t>(settings.level) + 1);
  gPacked.store(packed);
  return packed;
}

const char* nameOf(Level level) {
  switch (level) {
    case Level::kWarn:
      return "WARN";
    case Level::kInfo:
      return "INFO";
    case Level::kTrace:
      return "TRACE";
    default:
      return "VERSION";
  }
}

}  // namespace

bool enabled(Level level, Subsystem subsystem) {
  uint64_t packed = gPacked.load(std::memory_order_relaxed);
  if (packed == 0) [[unlikely]] {
    packed = load();
  }
  const int current = static_cast<int>(packed & 0xff) - 1;
  const bool heard = level <= Level::kWarn || ((packed >> 8) & static_cast<unsigned>(subsystem)) != 0;
  return static_cast<int>(level) <= current && heard;
}

void write(Level level, Subsystem, const char* text, ...) {
  char message[1400];
  va_list arguments;
  va_start(arguments, text);
  vsnprintf(message, sizeof message, text, arguments);
  va_end(arguments);
  char host[64];
  const bool named = os::hostName(host, sizeof host);
  std::lock_guard lock(gMutex);
  FILE* out = gFile != nullptr ? gFile : stderr;
  fprintf(out, "%s:%d:%d STRETTO %s %s\n", named ? host : "unknown", os::processId(), os::threadId(),
          nameOf(level), message);
  fflush(out);
}

void reset() {
  gPacked.store(0);
}

}  // namespace stretto::log
