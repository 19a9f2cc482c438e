// Recorders as if they had been read at kNow from living processes of one host, for tests of what is made of
// them.
#pragma once

#include <cstdint>
#include <string>

#include "observe/flight_reader.hpp"

namespace stretto::observe {

inline constexpr double kRate = 1e9;  // ticks are nanoseconds here
inline constexpr uint64_t kNow = 1'000'000'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

inline uint64_t ago(double seconds) {
  return kNow - static_cast<uint64_t>(seconds * kRate);
}

inline FlightSnapshot rankOf(int rank, int ranks) {
  FlightSnapshot snapshot;
  snapshot.source = "process " + std::to_string(100 + rank);
  snapshot.communicator = 0xc0ffee;
  snapshot.rank = rank;
  snapshot.ranks = ranks;
  snapshot.pid = static_cast<uint32_t>(100 + rank);
  snapshot.bootId[0] = 1;
  snapshot.tickRate = kRate;
  snapshot.anchorTicks = kSecond;
  snapshot.anchorRealtime = 1'700'000'000 * kSecond;
  snapshot.host = "h";
  snapshot.liveness = Liveness::kSleeping;
  snapshot.readTicks = kNow;
  return snapshot;
}

inline FlightOperation operation(uint64_t sequence, uint64_t start, uint64_t end = 0) {
  FlightOperation result;
  result.sequence = sequence;
  result.startTicks = start;
  result.endTicks = end;
  result.count = 4096;
  result.type = DataType::kBfloat16;
  result.state = end == 0 ? OperationState::kRunning : OperationState::kDone;
  return result;
}

inline FlightOperation transfer(Collective function, int peer, uint64_t start, uint64_t end = 0) {
  FlightOperation result = operation(0, start, end);
  result.function = function;
  result.type = DataType::kFloat32;
  result.count = 64;
  result.peer = peer;
  return result;
}

inline void add(FlightSnapshot& to, FlightOperation what) {
  what.place = ++to.begun;
  to.operations.push_back(what);
}

}  // namespace stretto::observe
