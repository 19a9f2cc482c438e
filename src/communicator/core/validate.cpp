// The one place where an operation's arguments are judged; everything below may rely on them.
#include <cstdint>

#include "communicator/core/host_memory.hpp"
#include "communicator/core/operation.hpp"

namespace stretto::communicator {
namespace {

// How many blocks of `count` elements the buffers of a collective hold on this rank, and which block of the
// larger buffer an in-place call may use (-1: only the same address, -2: never in place).
struct Extent {
  int inPlaceBlock;
  bool usesSend = true;
  bool usesReceive = true;
  size_t sendBlocks = 1;
  size_t receiveBlocks = 1;
};

Extent useOf(const Operation& operation, int rank) {
  const bool isRoot = rank == operation.root;
  switch (operation.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return {rank};
    case Collective::kAllToAll:
      return {-2};
    case Collective::kBroadcast:
      return {-1, isRoot, true};
    case Collective::kReduce:
      return {-1, true, isRoot};
    case Collective::kGather:
      return {operation.root, true, isRoot};
    case Collective::kScatter:
      return {operation.root, isRoot, true};
    case Collective::kSend:
      return {-2, true, false};
    case Collective::kReceive:
      return {-2, false, true};
    case Collective::kAllReduce:
    case Collective::kAllReduceAddRmsNorm:  // validateNorm() judges it
    case Collective::kPut:
    case Collective::kSignal:
    case Collective::kWaitSignal:
      break;  // OneSided::check() judges the last three
  }
  return {-1};
}

Extent extentOf(const Operation& operation, int rank, int ranks) {
  Extent extent = useOf(operation, rank);
  extent.sendBlocks = blocksSent(operation.collective, ranks);
  extent.receiveBlocks = blocksReceived(operation.collective, ranks);
  return extent;
}

Status checkRoot(const Operation& operation, int ranks) {
  const bool rooted =
      operation.collective != Collective::kAllReduce && operation.collective != Collective::kReduceScatter &&
      operation.collective != Collective::kAllGather && operation.collective != Collective::kAllToAll;
  if (rooted && (operation.root < 0 || operation.root >= ranks)) {
    return fail(Code::kInvalidArgument, "%s: %s %d is not a rank: this communicator has ranks 0 to %d",
                nameOf(operation.collective), operation.isTransfer() ? "peer" : "root", operation.root,
                ranks - 1);
  }
  return kOkStatus;
}

Status checkSize(const Operation& operation, const Extent& extent) {
  const size_t blocks = extent.sendBlocks > extent.receiveBlocks ? extent.sendBlocks : extent.receiveBlocks;
  size_t elements = 0;
  size_t bytes = 0;
  if (__builtin_mul_overflow(operation.count, blocks, &elements) ||
      __builtin_mul_overflow(elements, sizeOf(operation.type), &bytes) || bytes > SIZE_MAX / 2) {
    return fail(Code::kInvalidArgument, "%s: %zu elements of %s in %zu blocks do not fit in memory",
                nameOf(operation.collective), operation.count, nameOf(operation.type), blocks);
  }
  return kOkStatus;
}

Status checkOverlap(const Operation& operation, const Extent& extent) {
  const size_t block = operation.bytes();
  const auto send = reinterpret_cast<uintptr_t>(operation.send);
  const auto receive = reinterpret_cast<uintptr_t>(operation.receive);
  const bool apart =
      send + extent.sendBlocks * block <= receive || receive + extent.receiveBlocks * block <= send;
  if (apart) return kOkStatus;
  const size_t shift = extent.inPlaceBlock > 0 ? static_cast<size_t>(extent.inPlaceBlock) * block : 0;
  const bool sendIsLarger = extent.sendBlocks > extent.receiveBlocks;
  const bool inPlace =
      extent.inPlaceBlock != -2 && (sendIsLarger ? send + shift == receive : receive + shift == send);
  if (inPlace) return kOkStatus;
  return fail(Code::kInvalidArgument,
              "%s: the send buffer [%p, +%zu) and the receive buffer [%p, +%zu) overlap; %s",
              nameOf(operation.collective), operation.send, extent.sendBlocks * block, operation.receive,
              extent.receiveBlocks * block,
              extent.inPlaceBlock == -2 ? "this collective has no in-place form"
                                        : "in place, one must be the other's own block (see nccl.h)");
}

}  // namespace

Status validate(const Operation& operation, int rank, int ranks, bool onDevice) {
  if (operation.norms()) [[unlikely]]
    return validateNorm(operation);
  Extent extent = extentOf(operation, rank, ranks);
  if (onDevice && operation.collective == Collective::kAllToAll) extent.inPlaceBlock = -1;
  STRETTO_TRY(checkRoot(operation, ranks));
  STRETTO_TRY(checkSize(operation, extent));
  if (operation.count == 0) return kOkStatus;
  if ((extent.usesSend && operation.send == nullptr) ||
      (extent.usesReceive && operation.receive == nullptr)) {
    return fail(Code::kInvalidArgument, "%s: the %s buffer is null, with %zu elements to move",
                nameOf(operation.collective),
                extent.usesSend && operation.send == nullptr ? "send" : "receive", operation.count);
  }
  return extent.usesSend && extent.usesReceive ? checkOverlap(operation, extent) : kOkStatus;
}

Status refuseDeviceMemory(const Operation& operation, int rank, int ranks) {
  if (operation.count == 0) return kOkStatus;
  if (operation.norms()) return refuseDeviceMemoryOfNorm(operation, rank);
  const Extent extent = extentOf(operation, rank, ranks);
  const char* const name = nameOf(operation.collective);
  if (extent.usesSend) STRETTO_TRY(refuseDeviceMemory(name, "send buffer", operation.send, rank));
  if (extent.usesReceive && !operation.isOneSided())
    STRETTO_TRY(refuseDeviceMemory(name, "receive buffer", operation.receive, rank));
  return operation.scalarPlace == nullptr
             ? kOkStatus
             : refuseDeviceMemory(name, "scalar of its PreMulSum", operation.scalarPlace, rank);
}

}  // namespace stretto::communicator
