// Every environment variable that Stretto reads is declared in parameters.cpp, with its default and a line
// of help, so that `stretto info` can print them all and none hides in a corner. Values are read from the
// environment each time they are asked for: callers read them once, when a communicator is made.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.hpp"

namespace stretto {

class Parameter {
 public:
  constexpr Parameter(const char* name, const char* fallback, const char* help)
      : name_(name), fallback_(fallback), help_(help) {}

  const char* name() const { return name_; }
  const char* fallback() const { return fallback_; }
  const char* help() const { return help_; }
  bool isSet() const;

  // The variable's text, or the default's.
  std::string text() const;
  // Parsed forms; a value that does not parse or is out of range is kInvalidUsage and says what was read,
  // from which variable, and what is allowed. Sizes accept K, M and G.
  Result<int64_t> integer(int64_t low, int64_t high) const;
  Result<double> seconds(double low, double high) const;
  Result<bool> flag() const;

 private:
  const char* name_;
  const char* fallback_;
  const char* help_;
};

namespace parameters {

extern const Parameter kTimeout;
extern const Parameter kWarnAfter;
extern const Parameter kInitTimeout;
extern const Parameter kAlgo;
extern const Parameter kProto;
extern const Parameter kLink;
extern const Parameter kHosts;
extern const Parameter kProxyThreads;
extern const Parameter kRealNccl;
extern const Parameter kDevice;
extern const Parameter kSharedDevice;
extern const Parameter kChannels;
extern const Parameter kBlocks;
extern const Parameter kDeterministic;
extern const Parameter kTable;
extern const Parameter kSpin;
extern const Parameter kRings;
extern const Parameter kRingGather;
extern const Parameter kSlotBytes;
extern const Parameter kFlightDirectory;
extern const Parameter kFlightLate;
extern const Parameter kCpuLevel;
extern const Parameter kHostId;
extern const Parameter kMaxCtas;
extern const Parameter kSocketInterface;
extern const Parameter kSocketFamily;
extern const Parameter kNet;
extern const Parameter kNetPlugin;
extern const Parameter kNetFlows;
extern const Parameter kNetThreads;
extern const Parameter kLocalWorldSize;
extern const Parameter kOpenMpiLocalSize;
extern const Parameter kNetMerge;
extern const Parameter kNetChunk;
extern const Parameter kNetSmall;
extern const Parameter kNetLeastWindow;
extern const Parameter kNetMostWindow;
extern const Parameter kNetSilence;
extern const Parameter kNetSpeed;
extern const Parameter kNetGrouped;
extern const Parameter kTls;
extern const Parameter kProfilerPlugin;
extern const Parameter kProfileEvery;
extern const Parameter kTopologyFile;
extern const Parameter kTopologyDump;

// All of them, in the order of declaration.
std::span<const Parameter* const> all();

// STRETTO_WARN_AFTER and STRETTO_FLIGHT_LATE in seconds; infinity for never.
Result<double> warnAfter();
Result<double> flightLate();
// STRETTO_SHARED_DEVICE; 0: ranks may not share a GPU.
Result<int64_t> sharedDevice();

}  // namespace parameters
}  // namespace stretto
