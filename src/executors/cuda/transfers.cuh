// The kernel that moves one group's messages. Every pair of a peer and a direction has blocks of its own, so
// that nothing that waits keeps anything else from moving; share k of each message goes over channel k, in
// the order of the calls. Where there are more channels than blocks, a block has every n-th of them and takes
// a message over all of its channels before the next one, as the other end does, in however many launches: so
// the first channel of the first message that is unfinished always has its two blocks, however many each end
// has.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "executors/cuda/check.hpp"
#include "executors/cuda/engine.hpp"
#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

struct Message {
  std::byte* data;
  uint64_t bytes;
  uint64_t tag;
};

// As many as kernel parameters hold besides the context. Messages of one queue lie together.
struct Messages {
  static constexpr int kMost = 128;
  static constexpr int kMostQueues = 2 * kMaxRanks;
  struct Queue {
    int16_t peer;
    int16_t isSend;
    int16_t first;
    int16_t count;
  };
  Message message[kMost];
  Queue queue[kMostQueues];
  int blocks;      // of each queue: as many as the largest message has shares, if so many fit
  int shares;      // of the largest message
  int mostShares;  // of one message, equal on all ranks
};

// Shares of a message, one a channel: equal on both sides, so a function of what both know. `most` is.
__host__ __device__ constexpr int sharesOf(uint64_t bytes, int most) {
  constexpr uint64_t kShareBytes = 2048;  // below, one more block begins later than it helps
  const uint64_t shares = (bytes + kShareBytes - 1) / kShareBytes;
  return shares < static_cast<uint64_t>(most) ? static_cast<int>(shares) : most;
}

// The queues of one launch, of some steps of an exchange: in each a rank sends to the rank that many further,
// and receives from the one that many before. One for every peer and direction that has messages.
class Queues {
 public:
  Queues(std::span<const DeviceTransfer> transfers, int rank, int ranks, int mostShares)
      : transfers_(transfers), rank_(rank), ranks_(ranks) {
    messages_.mostShares = mostShares;
  }
  void addStep(int step) {
    add(algorithms::rotated(rank_, step, ranks_), true);
    add(algorithms::rotated(rank_, ranks_ - step, ranks_), false);
  }
  // All of them should run at the same time, and as many as there are channels do.
  void finish(int channels) {
    if (count_ > 0) messages_.blocks = std::clamp(channels / count_, 1, messages_.shares);
  }

  int count() const { return count_; }
  const Messages& messages() const { return messages_; }

 private:
  void add(int peer, bool isSend) {
    Messages::Queue queue{static_cast<int16_t>(peer), static_cast<int16_t>(isSend),
                          static_cast<int16_t>(filled_), 0};
    for (const DeviceTransfer& transfer : transfers_) {
      if (transfer.peer != peer || transfer.isSend != isSend || transfer.bytes == 0) continue;
      messages_.message[filled_++] = {transfer.data, transfer.bytes, transfer.tag};
      messages_.shares = std::max(messages_.shares, sharesOf(transfer.bytes, messages_.mostShares));
      ++queue.count;
    }
    if (queue.count > 0) messages_.queue[count_++] = queue;
  }

  std::span<const DeviceTransfer> transfers_;
  int rank_;
  int ranks_;
  int count_ = 0;
  int filled_ = 0;
  Messages messages_{};
};

// Messages to oneself are copied: the k-th send meets the k-th receive. All are looked at before any is.
inline Status copyToSelf(std::span<const DeviceTransfer> transfers, int rank, cudaStream_t stream) {
  std::vector<const DeviceTransfer*> sends, receives;
  for (const DeviceTransfer& transfer : transfers) {
    if (transfer.peer == rank) (transfer.isSend ? sends : receives).push_back(&transfer);
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    if (i < receives.size() && receives[i]->tag == sends[i]->tag) continue;
    return fail(
        Code::kInvalidUsage,
        "rank %d sends %zu bytes to itself: the same group must hold a receive of the same count and type",
        rank, sends[i]->bytes);
  }
  if (receives.size() > sends.size()) {
    return fail(Code::kInvalidUsage, "rank %d receives from itself without a send in the same group", rank);
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    STRETTO_TRY(check(
        cudaMemcpyAsync(receives[i]->data, sends[i]->data, sends[i]->bytes, cudaMemcpyDeviceToDevice, stream),
        "copying a message to oneself"));
  }
  return kOkStatus;
}

template <typename Backend>
__device__ Status moveMessage(Backend& backend, const Messages::Queue& queue, const Message& message,
                              int channel, int mostShares) {
  const int shares = sharesOf(message.bytes, mostShares);
  if (channel >= shares) return {};
  const algorithms::Span share = algorithms::Split(message.bytes, static_cast<size_t>(shares),
                                                   algorithms::kShareGrain)[static_cast<size_t>(channel)];
  std::byte* const data = message.data + share.begin;
  backend.setTag(message.tag);
  return queue.isSend != 0 ? backend.sendWarpChunks(queue.peer, data, share.size)
                           : backend.receiveWarpChunks(queue.peer, data, share.size);
}

// Not inline: one translation unit includes this.
__global__ void __launch_bounds__(kChunkThreads)
    transfers(const __grid_constant__ Context context, const __grid_constant__ Messages messages) {
  auto& shared = stretto::cuda::blockShared<BlockShared>();
  const int block = static_cast<int>(blockIdx.x) % messages.blocks;
  const Messages::Queue& queue = messages.queue[static_cast<int>(blockIdx.x) / messages.blocks];
  const int together = messages.shares <= messages.blocks ? queue.count : 1;
  bool begun = false;
  for (int first = 0; first < queue.count; first += together) {
    const int shares = sharesOf(messages.message[queue.first + first].bytes, messages.mostShares);
    for (int channel = block; channel < messages.shares; channel += messages.blocks) {
      // The last leaves the block's stamp, whether there is something to move or not.
      const bool last = first + together >= queue.count && channel + messages.blocks >= messages.shares;
      if (together == 1 && channel >= shares && !last) continue;
      Cuda<AnyReducer, WarpChunkFormat> backend(context, shared, channel);
      backend.begin(!begun);
      begun = true;
      backend.beginTransfers(queue.peer, queue.isSend != 0);
      for (int i = first; i < first + together; ++i) {
        const Message& message = messages.message[queue.first + i];
        if (!moveMessage(backend, queue, message, channel, messages.mostShares).ok()) break;
      }
      if (!backend.endTransfers(queue.peer, queue.isSend != 0, last)) return;
    }
  }
}

}  // namespace stretto::executors::cuda
