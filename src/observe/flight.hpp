// The flight recorder: the last 256 operations of one rank of one communicator, always on, in memory that
// other processes can read while this one lives, hangs or has just been killed. `stretto doctor` is the
// reader (flight_reader.hpp, doctor.hpp). The communicator owns one recorder per rank and tells it what
// begins and ends; nothing here takes a time stamp or a lock or allocates after open.
//
// The memory is a file, stretto-HOST-PID-COMMUNICATOR-RANK.flight, mode 0600, in the folder of
// flight_folder.hpp, which says when it stays there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "algorithms/registry.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "observe/flight_folder.hpp"
#include "platform/identity.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::observe {

struct FlightSlot;
struct FlightHeader;

enum class FlightState : uint8_t { kAlive = 1, kFinalized = 2, kAborted = 3 };
enum class OperationState : uint8_t { kRunning = 1, kDone = 2, kFailed = 3 };
const char* nameOf(FlightState state);
const char* nameOf(OperationState state);

struct FlightIdentity {
  ProcessIdentity process;
  uint64_t communicator = 0;  // equal on all its ranks, and on no other communicator
  int rank = 0;
  int ranks = 1;
  const char* library = "";  // strettoVersion()
};

// One operation, as it begins.
struct FlightRecord {
  uint64_t sequence = 0;  // number of the collective on its communicator, from 1; 0: between two ranks
  uint64_t startTicks = 0;
  uint64_t count = 0;
  Collective function = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  algorithms::Algorithm algorithm = algorithms::Algorithm::kLocal;
  algorithms::Protocol protocol = algorithms::Protocol::kSimple;
  int32_t root = -1;
  int32_t peer = -1;      // of a send, a receive or a one-sided operation
  bool enqueued = false;  // on a GPU: it begins later, and its end is noticed later still
};

// What is the same in the records of all calls of one kind, as it lies there.
struct FlightCall {
  uint64_t kind = 0;
  uint64_t ranks = 0;
  uint64_t elementBytes = 0;  // 0 for signals, which carry no data: their count is not one of elements
};
constexpr uint64_t byteOf(auto value, int place) {
  return static_cast<uint64_t>(value) << (8 * place);
}
// A rank or -1.
constexpr uint64_t rankField(int rank, int shift) {
  return static_cast<uint64_t>(static_cast<uint32_t>(rank + 1)) << shift;
}
// Every message asks for it.
constexpr FlightCall callOf(const FlightRecord& record) {
  return {uint64_t{record.enqueued} << 40 | byteOf(record.function, 0) | byteOf(record.type, 1) |
              byteOf(record.op, 2) | byteOf(record.algorithm, 3) | byteOf(record.protocol, 4),
          rankField(record.root, 0) | rankField(record.peer, 32),
          record.function < Collective::kSignal ? sizeOf(record.type) : 0};
}

// Owns the memory. begin and waiting: one thread at a time (nccl.h's rule for a communicator); end: one of
// an operation; note and setState: any thread. A recorder that was never opened, or was moved from, ignores
// all calls; so does, for note, setState and the destructor, its copy in a forked child.
class FlightRecorder {
 public:
  FlightRecorder() = default;
  FlightRecorder(FlightRecorder&& other) noexcept;
  FlightRecorder& operator=(FlightRecorder&& other) noexcept;
  ~FlightRecorder();  // sets kFinalized, unless kAborted was set

  // kSystem when the memory, or a file in a folder of the user's, cannot be had: the folder must exist, and
  // no file may be replaced.
  static Result<FlightRecorder> open(const FlightIdentity& identity) {
    return open(identity, flightFolder());
  }
  static Result<FlightRecorder> open(const FlightIdentity& identity, const FlightFolder& folder);

  // Returns the operation's place, for the calls below. Several may be running, as in a group; a place that
  // 256 later operations have taken over is ignored.
  uint64_t begin(const FlightRecord& record) noexcept {
    return begin(callOf(record), record.sequence, record.startTicks, record.count);
  }
  uint64_t begin(const FlightCall& call, uint64_t sequence, uint64_t startTicks, uint64_t count) noexcept;
  void end(uint64_t place, Status outcome, uint64_t ticks) noexcept;
  // The place of the operation that began last: where they run one after the other, of the one that runs.
  uint64_t latest() const noexcept { return begun_.load(std::memory_order_relaxed); }
  // Which peer the operation cannot go on without; -1: none. For waits that are not over at once.
  void waiting(uint64_t place, int peer) noexcept;
  // That wait is one of those that STRETTO_FLIGHT_LATE asks for: copies the recorders of the communicator's
  // ranks that lie in the same folder into a folder there, late-COMMUNICATOR-OPERATION. One rank does it for
  // all, every ten seconds at most and eight times in all.
  void late(uint64_t place, int peer) noexcept;
  // The communicator's last error, cut to 255 bytes. Dropped when two threads say one at the same moment.
  void note(const char* errorText) noexcept;
  void setState(FlightState state) noexcept;

  // The file, or empty: memory without a name.
  const std::string& path() const { return path_; }

 private:
  FlightHeader* header() const;
  bool isOwner() const;
  FlightSlot* slotOf(uint64_t place) const;
  std::string copyOf(uint64_t place) const;

  platform::SharedMemory memory_;
  std::byte* base_ = nullptr;
  std::atomic<uint64_t> begun_{0};  // written by whoever begins
  uint64_t bytes_ = 0;              // likewise
  int32_t owner_ = 0;  // pid: a forked child maps the same memory, and must not speak for its parent
  std::string path_;
  bool stays_ = true;  // the file, however this ends
  int copies_ = 0;
  uint64_t copiedTicks_ = 0;
};

}  // namespace stretto::observe
