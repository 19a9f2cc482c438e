// One operation as a user asked for it: what the API layer hands to submit(). Plain values; buffers stay the
// caller's and must live until the operation is done.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/types.hpp"
#include "primitives/operation.hpp"

namespace stretto::communicator {

// What an operation's call has told a profiler plugin (profile.hpp), and what it wants to hear of the rest.
struct Profiled {
  uint32_t mask = 0;         // as it was at the call; 0: nothing
  bool handedOver = false;   // the KernelLaunch event is behind us
  uint64_t userTag = 0;      // what the caller wants to be told with it
  uint64_t sequence;         // the collective's number among those of its function; nothing where mask is 0
  void* api = nullptr;       // the call's event
  void* groupApi = nullptr;  // that of the group it was called in, dead once the group has ended
};

// Every call makes one, so what it costs to make counts. `scalar` is left as it is found, in the middle of
// the rest: compilers clear a long run of zeros with one instruction (`rep stos`) whose beginning alone takes
// as long as the call's other work.
struct Operation {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  bool reduces = false;  // op means something
  int givenOp = 0;       // as the user wrote it, for a communicator that NCCL serves
  size_t count = 0;      // as in primitives/operation.hpp
  const void* send = nullptr;
  void* receive = nullptr;
  int root = -1;                      // or the peer of a send or receive
  bool scaled = false;                // PreMulSum: `scalar` times the input, then op (kSum)
  alignas(8) uint8_t scalar[8];       // one element of `type`; nothing unless scaled
  const void* scalarPlace = nullptr;  // where to read it when the operation runs, instead
  void* stream = nullptr;             // as the caller named it: on a GPU a cudaStream_t
  uint32_t signal;                    // of a one-sided operation: its number; nothing in others
  size_t offset;                      // of a put: bytes into the window `receive`; nothing in others
  NormArguments norm;                 // of an all-reduce with RMSNorm; nothing in others
  Profiled profiled;

  bool norms() const { return collective == Collective::kAllReduceAddRmsNorm; }
  size_t bytes() const { return count * sizeOf(type); }
  bool isTransfer() const { return collective == Collective::kSend || collective == Collective::kReceive; }
  bool isOneSided() const { return collective >= Collective::kPut; }
  bool isCollective() const { return collective < Collective::kSend; }
};

// Checks everything that can be known locally: counts that overflow, null and partly overlapping buffers,
// root or peer out of range.
// `onDevice`: the ranks are GPUs, where an all-to-all may be in place.
Status validate(const Operation& operation, int rank, int ranks, bool onDevice);
// The same of an all-reduce with RMSNorm; validate() asks it (validate_norm.cpp).
Status validateNorm(const Operation& operation);
// Its buffers; place null: it is not there.
struct NormBuffer {
  const char* name;
  const void* place;
  size_t bytes;
  bool isWritten;
};
inline constexpr size_t kNormBuffers = 9;
std::array<NormBuffer, kNormBuffers> buffersOfNorm(const Operation& operation);
// That none of them is memory of a GPU.
Status refuseDeviceMemoryOfNorm(const Operation& operation, int rank);

}  // namespace stretto::communicator
