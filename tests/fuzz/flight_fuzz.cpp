// libFuzzer: two copies of a flight recorder from bytes that anybody may have written, and the diagnosis of
// what they hold. Build and run, from the checkout:
//
//   clang++-14 -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Isrc
//     -Iinclude tests/fuzz/flight_fuzz.cpp src/observe/*.cpp src/base/*.cpp src/algorithms/registry.cpp
//     src/platform/identity.cpp src/platform/linux/clock.cpp src/platform/linux/shared_memory.cpp -pthread
//     -o flight_fuzz && ./flight_fuzz -max_total_time=30 -max_len=4096
#include <cstdlib>
#include <cstring>

#include "base/json.hpp"
#include "observe/doctor.hpp"
#include "observe/flight_format.hpp"

namespace {

using namespace stretto::observe;

// A small input stands for whole recorders: a header whose fields the input overwrites, and for several ranks
// a few records each. Fields that are always refused when they are wrong start out right.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), left_(size) {}
  bool done() const { return left_ == 0; }
  uint8_t byte() { return take<uint8_t>(); }
  template <typename T>
  T take() {
    T value{};
    const size_t bytes = left_ < sizeof value ? left_ : sizeof value;
    if (bytes > 0) memcpy(&value, at_, bytes);
    at_ += bytes;
    left_ -= bytes;
    return value;
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

std::vector<std::byte> goodHeader(int rank) {
  std::vector<std::byte> bytes(kFlightBytes);
  FlightHeader header{};
  header.magic = kFlightMagic;
  header.version = kFlightVersion;
  header.headerBytes = kFlightHeaderBytes;
  header.recordBytes = sizeof(FlightSlot);
  header.records = kFlightRecords;
  header.ranks = 4;
  header.rank = static_cast<uint64_t>(rank);
  header.pid = 1;
  header.tickRate = 2e9;
  header.state = 1;
  memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

// Each step is an opcode and its operands: a small value in a record, any bytes in a record or header.
void change(Input& input, std::vector<std::byte>& bytes) {
  const uint8_t what = input.byte();
  const size_t slot = input.byte() % 8;
  size_t offset = kFlightHeaderBytes + slot * sizeof(FlightSlot);
  if (what % 4 == 0) {
    FlightSlot record{};
    record.position = slot;
    record.sequence = input.byte() % 8;
    record.startTicks = input.take<uint32_t>();
    record.kind = uint64_t{input.byte()} % 10 | uint64_t{input.byte()} % 12 << 8;
    record.ranks = uint64_t{input.byte()} % 5 << 32 | input.byte() % 5;
    record.outcome =
        1 + input.byte() % 3 | uint64_t{input.byte()} % 9 << 8 | uint64_t{input.byte()} % 5 << 32;
    memcpy(bytes.data() + offset, &record, sizeof record);
    return;
  }
  if (what % 4 == 1) offset = input.byte() * 8;  // the header's beginning and all its numbers
  if (what % 4 == 2) offset += input.byte() % 8 * 8;
  if (what % 4 == 3) offset = input.take<uint16_t>() % (kFlightBytes - 8);
  const auto value = input.take<uint64_t>();
  memcpy(bytes.data() + offset, &value, sizeof value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  FlightReading reading;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<std::byte> first = goodHeader(rank);
    for (uint8_t steps = input.byte() % 8; steps > 0 && !input.done(); --steps) change(input, first);
    std::vector<std::byte> second = first;
    for (uint8_t steps = input.byte() % 3; steps > 0 && !input.done(); --steps) change(input, second);
    auto snapshot = parseFlight(first, second);
    if (!snapshot.ok()) continue;
    snapshot.value().readTicks = input.take<uint32_t>();
    snapshot.value().liveness = static_cast<Liveness>(input.byte() % 5);
    reading.snapshots.push_back(std::move(snapshot.value()));
  }
  const Diagnosis diagnosis = diagnose(reading);
  if (!stretto::json::parse(diagnosis.json).ok()) abort();
  if (!reading.snapshots.empty() && diagnosis.text.empty()) abort();
  return 0;
}
