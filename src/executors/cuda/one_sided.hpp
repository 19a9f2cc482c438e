// One-sided operations between GPUs: a put with its signal, a signal alone, and the wait for signals.
//
//   1. The blocks of a put write their shares of the buffer into the peer's window. The last block to be done
//      counts one more in the peer's counter, with release order.
//   2. A wait acquires its own counter until that is as high as it wants it. What follows on its stream sees
//      all that was put before those signals.
//
// Counters only grow. What a rank has sent and taken is counted on its own device, so graphs replay. A block
// of a put looks once, before it writes, whether its rank has given up or was ended, and then writes nothing.
// A peer that hears of a failure sooner may therefore still be written to (nccl.h says so).
// The engine's, on its thread.
#pragma once

#include "executors/cuda/engine.hpp"

namespace stretto::executors::cuda {

// Addresses are this device's.
struct Put {
  std::byte* to;
  const std::byte* from;
  uint64_t bytes;
  uint64_t* counter;  // the receiver's, of this rank
  uint64_t* sent;
  uint32_t* arrived;  // blocks of this launch; 0 between launches
  uint64_t* ended;
};
struct SignalWait {
  const uint64_t* counter;
  uint64_t* taken;
  uint64_t count;
  uint64_t* ended;
  int32_t peer;
};

using PutKernel = void (*)(stretto::cuda::Context, Put);
using WaitKernel = void (*)(stretto::cuda::Context, SignalWait);
PutKernel putKernel();
WaitKernel waitKernel();
inline constexpr int kPutThreads = 512, kWaitThreads = 32;
int blocksOfPut(size_t bytes);

// What a rank has sent to and taken from every other, in device memory of its own. What others have sent is
// counted in its window; what it has sent to itself is counted here.
class Signals {
 public:
  explicit Signals(const Setup& setup) : setup_(setup) {}
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  Status begin();
  // `windows`: by rank, as this device addresses them.
  Put put(const DeviceSignal& signal, std::byte* const* windows) const;
  SignalWait wait(int peer, uint32_t number, uint64_t count, std::byte* const* windows) const;
  // Kernels of both that have ended; in the device's memory.
  uint64_t* ended() const { return reinterpret_cast<uint64_t*>(at(2 * setup_.ranks + 1, 1)); }

 private:
  // Rows of counters: sent to each rank, taken from each rank, of its own to itself; and then the blocks that
  // have arrived, and the kernels that have ended.
  std::byte* at(int row, uint32_t number) const {
    return memory_ + stretto::cuda::Shape::signalAt(row, number);
  }
  // Of rank `receiver`, for what `sender` sends; one of them is this rank.
  uint64_t* counter(int receiver, int sender, uint32_t number, std::byte* const* windows) const;

  const Setup& setup_;
  std::byte* memory_ = nullptr;
};

}  // namespace stretto::executors::cuda
