// One rank's side on its GPU: the state that its kernels share, and how operations are launched. Made by the
// communicator; kernels take everything from here. Plain C++: a library built without CUDA has it too
// (absent.cpp) and says so.
//
// Threads: one at a time launches; abort() and report() may come from any.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "algorithms/registry.hpp"
#include "base/status.hpp"
#include "primitives/cuda/state.hpp"
#include "primitives/operation.hpp"

namespace stretto::executors::cuda {

// A cudaStream_t; null is the legacy default stream.
using StreamHandle = void*;

// Block k of every rank's kernel talks to block k of its peers through channel k of the windows, and to
// nobody else.
struct Setup {
  int device = 0;
  int rank = 0;
  int ranks = 1;
  stretto::cuda::Shape shape;  // of every rank's window
  double timeoutSeconds = 0;   // of a wait in a kernel
  bool sharedDevice = false;   // other ranks, of any communicator, may run on the same device
  int residentBlocks = 1;      // that each kernel may count on, the least of all ranks

  // Of a channel's Lamport lines, bytes.
  size_t payload() const { return stretto::cuda::lamportPayload(shape.layout); }
};

// How one collective runs; all ranks give the same, but for their own buffers.
struct Launch {
  Collective collective = Collective::kAllReduce;
  algorithms::Algorithm algorithm = algorithms::Algorithm::kLocal;
  algorithms::Protocol protocol = algorithms::Protocol::kSimple;
  int blocks = 1;        // channels that take part
  int firstChannel = 0;  // of them: not 0 only where several operations share a launch
  Arguments arguments;
  uint64_t tag = 0;       // equal on all ranks exactly if they run the same operation
  uint64_t sequence = 0;  // for reports
  bool scaled = false;    // PreMulSum: the input times `scalar`, then kSum
  alignas(8) uint8_t scalar[8] = {};
  const void* scalarPlace = nullptr;  // device memory to read it from when the operation runs, instead
  // Every rank's buffers as this device addresses them, by rank. Read by launch(). Protocol::kCopy: receive
  // buffers; protocols that pull: send buffers, and of two shots both.
  std::byte* const* sends = nullptr;
  std::byte* const* receives = nullptr;
};

// One message of a group.
struct DeviceTransfer {
  bool isSend = false;
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint64_t tag = 0;
};

// From one rank to another: a buffer goes where the other has registered a window, if there is one, and then
// the other's counter of that number says one more.
struct DeviceSignal {
  int peer = 0;
  uint32_t number = 0;
  std::byte* to = nullptr;  // in the peer's window, as this device addresses it
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

// What a kernel said when it gave up: the first word of any block.
struct Report {
  static constexpr uint64_t kSignals = UINT64_MAX;  // `sequence` of who waited for signals
  Status status;
  uint64_t sequence = 0;
  uint64_t theirTag = 0;  // kInvalidUsage: what the peer runs instead
};

// When one block of a kernel ran: from its turn in the stream to its end, nanoseconds of the device's
// %globaltimer.
struct KernelStamp {
  int block = 0;
  uint64_t launch = 0;  // lastLaunch() of what it belongs to
  uint64_t start = 0;
  uint64_t stop = 0;
  int peer = -1;        // of a transfer
  bool isSend = false;  // of a transfer
  // Of a collective: its number, from 1, among those that this block took part in since create(), replays of
  // graphs included; equal on all ranks. 0: a transfer.
  uint64_t operation = 0;
};

struct KernelCounts {
  uint64_t collectives = 0;  // kLocal is no kernel
  uint64_t oneSided = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const Setup& setup);
  virtual ~Engine() = default;

  // Before the first launch of a kernel: all ranks' windows, by rank, as this device addresses them; null for
  // who takes no part in anything.
  virtual Status useWindows(std::byte* const* windows) = 0;
  // Before the first launch between registered windows: loads its kernels. To do that while one of them waits
  // for a rank that this thread has yet to call for could last for ever.
  virtual Status wantWindows() = 0;
  // Enqueues; returns when enqueued. Capturable.
  virtual Status launch(const Launch& launch, StreamHandle stream) = 0;
  // Several collectives of one group in one launch: side by side where their channels differ, else in their
  // order; peers may launch them in another number of launches. `mayShare`: whether it may be among several,
  // and in channels that do not begin at 0; the same on all ranks. `joins`: whether `next`, which may share,
  // may do so with those before it, which may be none; that depends on this rank's buffers. To each its own
  // lastLaunch(): lastOf(), by its index among them.
  virtual bool mayShare(const Launch& launch) const = 0;
  virtual bool joins(std::span<const Launch> before, const Launch& next) const = 0;
  virtual Status launchTogether(std::span<const Launch> launches, StreamHandle stream) = 0;
  // Messages of one group, in the order of the calls; all make progress at once.
  virtual Status launchTransfers(std::span<const DeviceTransfer> transfers, uint64_t sequence,
                                 StreamHandle stream) = 0;

  // One-sided operations. Of a communicator they run one after the other, like all others, so that a rank
  // that waits for a signal of its own has sent it before, or is told kInvalidUsage. Capturable: signals are
  // counted on the device.
  virtual Status launchSignal(const DeviceSignal& signal, StreamHandle stream) = 0;
  virtual Status launchWait(int peer, uint32_t number, uint64_t count, StreamHandle stream) = 0;

  // Ends every wait of this rank's kernels. The word is kept: kernels launched later return at once.
  virtual void abort(uint32_t word) = 0;
  // kOk while no kernel has given up.
  virtual Report report() const = 0;
  // What kernels that wait long have said, by Awaited and peer; launch 0 where it changes just now, or
  // nothing was said.
  virtual std::array<stretto::cuda::LongLook, stretto::cuda::kAwaited> longLooks() const = 0;
  // Kernels that have ended since create(), graph replays included; those of transfers are not counted. Asks
  // the device, with calls that a capture of another thread may forbid.
  virtual KernelCounts finished() const = 0;

  // Kernels that are launched, or captured, from now on leave a stamp of each of their first blocks.
  static constexpr int kMostStamps = stretto::cuda::Stamps::kBlocks;
  virtual Status wantStamps() = 0;
  // The launch before.
  struct Launched {
    uint64_t number = 0;  // from 1
    int channels = 0;     // how many of its blocks tell of themselves when stamps are wanted
    int stamps = 0;       // and how many will
    int kernels = 0;      // of a collective: how many finished() will count
  };
  virtual Launched lastLaunch() const = 0;
  // One of those that were launched together last.
  virtual Launched lastOf(size_t index) const = 0;
  // If it was of transfers, as far as it moves the messages of one peer and direction.
  virtual Launched lastTransfers(int peer, bool isSend) const = 0;
  // Queues of messages have equally many blocks, one queue's after the other's; the first of all leave
  // stamps.
  static constexpr int channelsOfQueue(int queue, int blocks) {
    return std::clamp(kMostStamps - queue * blocks, 0, blocks);
  }
  // Takes stamps that have come, oldest of each block first, until `stamps` is full or there are no more;
  // returns how many, and adds those that were overwritten to `lost`. One thread at a time, any thread.
  virtual size_t takeStamps(std::span<KernelStamp> stamps, uint64_t& lost) = 0;
};

// Brings a new, zeroed window into the state in which kernels find it; before peers know of it.
Status prepareWindow(int device, std::byte* window, const stretto::cuda::Shape& shape);

// Blocks of this library's kernels that fit on a device at once, for ranks that share one.
Result<int> mostResidentBlocks(int device);

}  // namespace stretto::executors::cuda
