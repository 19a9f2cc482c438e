// What the tests of flight recorders share: recorders of this process, records whose fields are known, a
// folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "harness/temporary_folder.hpp"
#include "harness/watchdog.hpp"
#include "observe/flight.hpp"
#include "observe/flight_reader.hpp"

namespace stretto::observe {

inline FlightIdentity identityOf(uint64_t communicator, int rank, int ranks) {
  auto process = currentIdentity();
  EXPECT_TRUE(process.ok()) << lastError();
  return {process.value(), communicator, rank, ranks, "0.1.0"};
}

inline FlightRecorder openRecorder(uint64_t communicator, int rank, int ranks) {
  auto recorder = FlightRecorder::open(identityOf(communicator, rank, ranks));
  EXPECT_TRUE(recorder.ok()) << lastError();
  return std::move(recorder.value());
}

// Every field follows from the number.
inline FlightRecord recordOf(uint64_t n) {
  FlightRecord record;
  record.sequence = n;
  record.startTicks = n * 5;
  record.count = ~n;
  record.function = static_cast<Collective>(n % kCalls);
  record.type = static_cast<DataType>(n % kDataTypes);
  record.op = static_cast<Operator>(n % kOperators);
  record.algorithm = static_cast<algorithms::Algorithm>(n % algorithms::kAlgorithms);
  record.protocol = static_cast<algorithms::Protocol>(n % algorithms::kProtocols);
  record.root = static_cast<int32_t>(n % 4) - 1;
  record.peer = static_cast<int32_t>(n % 5) - 1;
  record.enqueued = n % 3 == 0;
  return record;
}

// One recorder of this process; nothing else of the test binary has any open.
inline FlightSnapshot readOwn() {
  auto reading = readProcess(getpid());
  EXPECT_TRUE(reading.ok()) << lastError();
  if (!reading.ok()) return {};
  EXPECT_EQ(reading.value().snapshots.size(), 1u);
  return reading.value().snapshots.empty() ? FlightSnapshot{} : reading.value().snapshots.front();
}

class FlightTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("STRETTO_FLIGHT_DIR", "none", 1); }  // nothing stays on this machine
  void TearDown() override { unsetenv("STRETTO_FLIGHT_DIR"); }
  void useDirectory() { setenv("STRETTO_FLIGHT_DIR", directory_.c_str(), 1); }

  testing::Watchdog watchdog_{"a flight recorder test", 120};
  const testing::TemporaryFolder folder_{"flight"};
  const std::filesystem::path directory_ = folder_.path();
};

}  // namespace stretto::observe
