#include "profiler/settings.hpp"

#include <bit>
#include <cstdlib>
#include <string_view>

#include "profiler/notice.hpp"

namespace stretto::profiler {
namespace variables {

constexpr Parameter kDirectory{"STRETTO_TRACE_DIR", "",
                               "record into this directory (made if missing; default: record nothing)"};
constexpr Parameter kEvents{"STRETTO_TRACE_EVENTS", "default",
                            "what to record: a number, or names and presets joined by commas"};
constexpr Parameter kMode{"STRETTO_TRACE_MODE", "stream",
                          "stream keeps everything, flight the last events of each thread"};
constexpr Parameter kSegmentBytes{"STRETTO_TRACE_SEGMENT_BYTES", "256K",
                                  "bytes that a thread takes at once: a power of two from 4K to 16M"};
constexpr Parameter kSegments{"STRETTO_TRACE_SEGMENTS", "4", "segments that a thread keeps in flight mode"};
constexpr Parameter kLimit{"STRETTO_TRACE_LIMIT", "4G",
                           "largest file of one process; events beyond it are counted, not kept"};
constexpr Parameter kAfter{
    "STRETTO_TRACE_AFTER", "0",
    "seconds from the first communicator on in which nothing is recorded; never: until "
    "`stretto trace window` asks"};
constexpr Parameter kFor{"STRETTO_TRACE_FOR", "0", "seconds that are recorded then; 0: to the end"};
constexpr Parameter kEach{
    "STRETTO_TRACE_EACH", "0",
    "so many seconds of each that many are recorded, at the same moments in all processes "
    "of the host; 0: once"};
constexpr Parameter kChain{"STRETTO_TRACE_CHAIN", "",
                           "path of a second profiler plugin that gets every call too"};
constexpr Parameter kNvtx{"STRETTO_TRACE_NVTX", "0",
                          "1: NVTX ranges around operations, for tools that listen"};
constexpr Parameter kCupti{"STRETTO_TRACE_CUPTI", "0",
                           "1: CUPTI external correlation ids around kernel launches"};
constexpr Parameter kEmpty{"STRETTO_TRACE_EMPTY", "ids",
                           "the empty plugin's handles: ids, or null (then the host skips stops and states)"};

std::span<const Parameter* const> all() {
  static constexpr const Parameter* kAll[] = {&kDirectory, &kEvents, &kMode, &kSegmentBytes, &kSegments,
                                              &kLimit,     &kAfter,  &kFor,  &kEach,         &kChain,
                                              &kNvtx,      &kCupti,  &kEmpty};
  return kAll;
}

}  // namespace variables

namespace {

struct Name {
  std::string_view text;
  uint32_t mask;
};
constexpr uint32_t kApi =
    bit(Type::kGroupApi) | bit(Type::kCollApi) | bit(Type::kP2pApi) | bit(Type::kKernelLaunch);
constexpr uint32_t kOperations = bit(Type::kGroup) | bit(Type::kColl) | bit(Type::kP2p) | bit(Type::kCeColl) |
                                 bit(Type::kCeSync) | bit(Type::kCeBatch);
constexpr uint32_t kGpu = bit(Type::kKernelCh) | bit(Type::kKernelPhase);
constexpr uint32_t kNetwork =
    bit(Type::kProxyOp) | bit(Type::kProxyStep) | bit(Type::kProxyCtrl) | bit(Type::kNetPlugin);
// KernelCh (and what needs it) makes NCCL's kernels and its proxy thread work more, so it has to be asked
// for.
constexpr Name kNames[] = {
    {"none", 0},
    {"api", kApi},
    {"default", kApi | kOperations | kNetwork},
    {"timing", kApi | kOperations | kGpu},
    {"net", kOperations | kNetwork},
    {"all", 0xffff},
    {"Group", bit(Type::kGroup)},
    {"Coll", bit(Type::kColl)},
    {"P2p", bit(Type::kP2p)},
    {"ProxyOp", bit(Type::kProxyOp)},
    {"ProxyStep", bit(Type::kProxyStep)},
    {"ProxyCtrl", bit(Type::kProxyCtrl)},
    {"KernelCh", bit(Type::kKernelCh)},
    {"NetPlugin", bit(Type::kNetPlugin)},
    {"GroupApi", bit(Type::kGroupApi)},
    {"CollApi", bit(Type::kCollApi)},
    {"P2pApi", bit(Type::kP2pApi)},
    {"KernelLaunch", bit(Type::kKernelLaunch)},
    {"CeColl", bit(Type::kCeColl)},
    {"CeSync", bit(Type::kCeSync)},
    {"CeBatch", bit(Type::kCeBatch)},
    {"KernelPhase", bit(Type::kKernelPhase)},
};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool sameWord(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

bool parseNumber(const std::string& text, uint32_t& mask) {
  char* end = nullptr;
  const unsigned long long value = strtoull(text.c_str(), &end, 0);
  if (text.empty() || text[0] < '0' || text[0] > '9' || *end != 0 || value > 0xffff) return false;
  mask = static_cast<uint32_t>(value);
  return true;
}

bool parseWord(std::string_view word, uint32_t& mask) {
  for (const Name& name : kNames) {
    if (sameWord(name.text, word)) {
      mask |= name.mask;
      return true;
    }
  }
  return false;
}

// The variable's value, or its default's where it is wrong; base/ has already put the reason into
// lastError().
template <typename T>
T orDefault(const Parameter& variable, const Result<T>& read, T fallback, Logger logger) {
  if (read.ok()) return read.value();
  notice(logger, LogLevel::kWarn, "%s; using %s", lastError().c_str(), variable.fallback());
  return fallback;
}

uint32_t readSegmentBytes(Logger logger) {
  constexpr uint32_t kDefault = 256 << 10;
  const auto bytes = static_cast<uint64_t>(orDefault(variables::kSegmentBytes,
                                                     variables::kSegmentBytes.integer(4 << 10, 16 << 20),
                                                     int64_t{kDefault}, logger));
  if (std::has_single_bit(bytes)) return static_cast<uint32_t>(bytes);
  notice(logger, LogLevel::kWarn, "%s=%s is no power of two; using %s", variables::kSegmentBytes.name(),
         variables::kSegmentBytes.text().c_str(), variables::kSegmentBytes.fallback());
  return kDefault;
}

// Windows that come again must end before they do.
double readEach(double forSeconds, Logger logger) {
  constexpr double kLongest = 1e9;
  const double each = orDefault(variables::kEach, variables::kEach.seconds(0, kLongest), 0.0, logger);
  if (each == 0 || (forSeconds > 0 && forSeconds < each)) return each;
  notice(logger, LogLevel::kWarn, "%s=%s needs a shorter %s; it is left out", variables::kEach.name(),
         variables::kEach.text().c_str(), variables::kFor.name());
  return 0;
}

format::Mode readMode(Logger logger) {
  const std::string text = variables::kMode.text();
  if (text == "flight") return format::Mode::kFlight;
  if (text != "stream") {
    notice(logger, LogLevel::kWarn, "%s=%s: write stream or flight; using stream", variables::kMode.name(),
           text.c_str());
  }
  return format::Mode::kStream;
}

}  // namespace

bool parseEvents(const std::string& text, uint32_t& mask) {
  if (parseNumber(text, mask)) return true;
  uint32_t all = 0;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    if (!parseWord(rest.substr(0, comma), all)) return false;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  mask = all;
  return true;
}

uint32_t readEvents(uint32_t fallback, Logger logger) {
  uint32_t mask = fallback;
  if (variables::kEvents.isSet() && !parseEvents(variables::kEvents.text(), mask)) {
    notice(logger, LogLevel::kWarn,
           "%s=%s: write a number up to 0xffff, or words joined by commas: api, default, timing, net, all, "
           "none, or "
           "types such as CollApi; using 0x%x",
           variables::kEvents.name(), variables::kEvents.text().c_str(), fallback);
  }
  return mask;
}

Settings readSettings(Logger logger) {
  using namespace variables;
  Settings settings;
  settings.directory = kDirectory.text();
  settings.chain = kChain.text();
  uint32_t fallback = 0;
  parseEvents(kEvents.fallback(), fallback);
  settings.mask = readEvents(fallback, logger);
  settings.mode = readMode(logger);
  settings.segmentBytes = readSegmentBytes(logger);
  settings.segmentsPerThread =
      static_cast<uint32_t>(orDefault(kSegments, kSegments.integer(2, 4096), int64_t{4}, logger));
  settings.limit = static_cast<uint64_t>(
      orDefault(kLimit, kLimit.integer(64 << 10, int64_t{1} << 40), int64_t{4} << 30, logger));
  constexpr double kLongest = 1e9;
  settings.onDemand = kAfter.text() == "never";
  if (!settings.onDemand) settings.afterSeconds = orDefault(kAfter, kAfter.seconds(0, kLongest), 0.0, logger);
  settings.forSeconds = orDefault(kFor, kFor.seconds(0, kLongest), 0.0, logger);
  settings.eachSeconds = readEach(settings.forSeconds, logger);
  settings.nvtx = orDefault(kNvtx, kNvtx.flag(), false, logger);
  settings.cupti = orDefault(kCupti, kCupti.flag(), false, logger);
  return settings;
}

}  // namespace stretto::profiler
