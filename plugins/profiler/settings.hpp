// Every environment variable that the profiler plugins read is declared in settings.cpp, with its default and
// a line of help, and read once: when the first communicator is made. docs/recording.md shows the same table
// to users.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/parameters.hpp"
#include "profiler/abi.hpp"
#include "profiler/format.hpp"

namespace stretto::profiler {

namespace variables {
extern const Parameter kDirectory;
extern const Parameter kEvents;
extern const Parameter kMode;
extern const Parameter kSegmentBytes;
extern const Parameter kSegments;
extern const Parameter kLimit;
extern const Parameter kAfter;
extern const Parameter kFor;
extern const Parameter kEach;
extern const Parameter kChain;
extern const Parameter kNvtx;
extern const Parameter kCupti;
extern const Parameter kEmpty;
std::span<const Parameter* const> all();
}  // namespace variables

struct Settings {
  std::string directory;  // empty: nothing is recorded
  std::string chain;
  uint32_t mask = 0;
  format::Mode mode = format::Mode::kStream;
  uint32_t segmentBytes = 0;
  uint32_t segmentsPerThread = 0;
  uint64_t limit = 0;
  bool onDemand = false;  // nothing is recorded until somebody asks for it
  double afterSeconds = 0;
  double forSeconds = 0;   // 0: to the end
  double eachSeconds = 0;  // 0: once
  bool nvtx = false;
  bool cupti = false;
};

// Where a variable does not parse, its default holds and `logger` gets a word about it: a profiler is no
// reason for a job to fail.
Settings readSettings(Logger logger);

// The mask that `text` says: a number (0x for hexadecimal), or names and presets joined by commas
// ("api,coll"). False when a word of it is none of these.
bool parseEvents(const std::string& text, uint32_t& mask);
// STRETTO_TRACE_EVENTS, or `fallback` where it is not set or wrong.
uint32_t readEvents(uint32_t fallback, Logger logger);

}  // namespace stretto::profiler
