// The sends and receives of one turn in host memory, as a profiler plugin hears them: P2p and KernelCh, and
// for a transfer over a link what NCCL calls a proxy operation, with a step for each chunk: a wait for it, or
// for room, and a copy. All run together, so that they begin and end as one; their chunks are told one by
// one. Used by Profile, which starts the P2p events.
//
// Invariant: whatever was started has been stopped when close() returns, however the transfers ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "executors/host/transfers.hpp"
#include "observe/profiler_host.hpp"

namespace stretto::communicator {

class TransferSteps final : private executors::host::TransferWatch {
 public:
  // The session outlives close(), and so does each transfer; `p2p` is its event, which is stopped there.
  void open(const observe::profiler::Session& session) {
    session_ = &session;
    moving_.clear();
  }
  void add(const executors::host::HostTransfer& transfer, uint32_t mask, void* p2p) {
    moving_.push_back({&transfer, mask, p2p, nullptr, nullptr, nullptr, 0});
  }
  // All are there, and begin. Null if nobody wants to hear of their chunks.
  executors::host::TransferWatch* begin(size_t chunkBytes, uint64_t at);
  // They have ended. Nothing if there are none.
  void close(uint64_t at);

 private:
  // A send or receive that runs.
  struct Moving {
    const executors::host::HostTransfer* transfer = nullptr;
    uint32_t mask = 0;
    void* p2p = nullptr;
    void* channel = nullptr;
    void* op = nullptr;
    void* step = nullptr;
    int steps = 0;  // done
  };

  void startProxyOp(Moving& moving, size_t chunkBytes, uint64_t at) const;
  void startStep(Moving& moving, uint64_t at) const;
  void ready(const executors::host::HostTransfer& transfer, size_t bytes) override;
  void moved(const executors::host::HostTransfer& transfer) override;
  Moving* find(const executors::host::HostTransfer& transfer);

  const observe::profiler::Session* session_ = nullptr;
  std::vector<Moving> moving_;
};

}  // namespace stretto::communicator
