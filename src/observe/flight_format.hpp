// How a flight recorder lies in memory or in a file: one header page and 256 records of 64 bytes. Written by
// one process (flight.hpp), read by others at any moment, even when the writer is stopped in the middle of a
// store or was killed there. Only flight*.cpp include this.
//
// All fields are 64-bit words that are stored whole. Which store makes what valid:
//   header   everything up to `magic` is written before `magic`, and never again; `state` is one word;
//            the error text is whole while `errorVersion` is even and the same before and after reading.
//   record   `position` is set to 0, then the fields, then `position` to the number of the operation among
//            all begun here, from 1: a record is whole while its position is the same before and after.
//            `outcome` is the one word that changes while an operation runs; `endTicks` is written before
//            the outcome that says that the operation is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace stretto::observe {

inline constexpr uint64_t kFlightMagic = 0x54474c4652545331;  // "1STRFLGT" as bytes in memory
inline constexpr uint64_t kFlightVersion = 4;
inline constexpr size_t kFlightHeaderBytes = 4096;
inline constexpr size_t kFlightRecords = 256;
inline constexpr size_t kFlightErrorBytes = 256;
inline constexpr size_t kFlightHostBytes = 72;
inline constexpr char kFlightLabel[] = "stretto-flight";
inline constexpr char kFlightSuffix[] = ".flight";

struct FlightHeader {
  uint64_t magic;  // written last
  uint64_t version;
  uint64_t headerBytes;
  uint64_t recordBytes;
  uint64_t records;
  uint64_t communicator;
  uint64_t ranks;
  uint64_t rank;
  uint64_t pid;           // as its own pid namespace numbers it
  uint64_t startTime;     // of the process, clock ticks after boot
  uint64_t pidNamespace;  // inode number
  uint8_t bootId[16];
  double tickRate;          // per second
  uint64_t anchorRealtime;  // nanoseconds since 1970 at ...
  uint64_t anchorTicks;     // ... this tick count
  char host[kFlightHostBytes];
  char library[24];  // version

  // These change.
  uint64_t state;  // FlightState
  uint64_t begun;  // operations begun; a hint
  uint64_t bytes;  // count x element size of all of them; a hint, at most one operation behind `begun`
  uint64_t errorVersion;
  uint64_t errorTicks;
  uint64_t errorText[kFlightErrorBytes / 8];  // ends with a zero

  uint64_t copiedTicks;  // 0 in a recorder; in a copy of one (flight_folder.hpp), when that was made
  uint64_t endedTicks;   // when the state became another than alive; 0 before
};
static_assert(sizeof(FlightHeader) <= kFlightHeaderBytes && std::is_trivially_copyable_v<FlightHeader>);

struct FlightSlot {
  uint64_t position;
  uint64_t sequence;
  uint64_t startTicks;
  uint64_t count;
  uint64_t
      kind;  // bytes from the lowest: collective, type, operator, algorithm, protocol, 1 if it was enqueued
  uint64_t ranks;  // low half: root + 1, high half: peer + 1; 0 is none
  uint64_t endTicks;
  uint64_t outcome;  // byte 0: OperationState, byte 1: Code; bits 16..31: failed peer + 1; high half: awaited
                     // peer + 1
};
static_assert(sizeof(FlightSlot) == 64 && std::is_trivially_copyable_v<FlightSlot>);

inline constexpr size_t kFlightBytes = kFlightHeaderBytes + kFlightRecords * sizeof(FlightSlot);

}  // namespace stretto::observe
