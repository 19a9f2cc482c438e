// One-sided operations between ranks in host memory: the windows that their ranks have registered together,
// and the signals. A rank writes into a peer's window and moves a counter there; nobody else writes that
// counter. Owned by the communicator, used by one thread at a time, but for address() and check().
//
// Windows in memory of ncclMemAlloc are mapped when they are registered, and stay mapped until they are
// deregistered. Others are written in place where ranks are threads of one process, and by the kernel
// elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bootstrap/membership.hpp"
#include "communicator/core/operation.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/host/host.hpp"

namespace stretto::communicator {

// What can be judged of a one-sided operation wherever ranks are.
Status checkPeer(const Operation& operation, int ranks);
Status checkLocalBuffer(const Operation& operation);

class OneSided {
 public:
  static constexpr int kContexts = 16;
  static constexpr int kSignals = 64;  // of each context
  static constexpr size_t kMostWindows = 256;
  // Of every rank's region: a counter for each signal of each rank.
  static constexpr size_t bytesFor(int ranks) {
    return static_cast<size_t>(ranks) * kContexts * kSignals * sizeof(uint64_t);
  }
  static constexpr uint32_t numberOf(int context, int signal) {
    return static_cast<uint32_t>(context * kSignals + signal);
  }

  struct Registration {
    const void* handle = nullptr;  // the user's name for it
    std::byte* buffer = nullptr;
    size_t bytes = 0;
    Status refused;  // what this rank tells all others instead
    double timeoutSeconds = 0;
  };

  // `countersOffset`: where the counters lie in every rank's region. All of `peers` outlive this.
  void open(int rank, std::span<const Peer> peers, size_t countersOffset);
  void close();

  // Collective over the membership. All ranks give buffers of the same size.
  Status registerWindow(bootstrap::Membership& membership, const Registration& mine);
  // The handle may be that of no window.
  void deregisterWindow(const void* handle);
  // In this rank's addresses; kInvalidUsage where the peer's buffer has none here. Any thread.
  Status address(const void* handle, int peer, size_t offset, void** out) const;

  // What can be judged before an operation runs. Any thread.
  Status check(const Operation& operation) const;
  // In the frame of the host's operation.
  Status run(Host& host, const Operation& operation);

 private:
  // A peer's buffer.
  struct Place {
    std::byte* here = nullptr;  // in this rank's addresses; null: the kernel writes to `there`
    uint64_t there = 0;         // in the peer's
    platform::SharedMemory mapping;
  };
  struct Window {
    const void* handle = nullptr;
    size_t bytes = 0;
    std::vector<Place> places;  // by rank
  };
  struct Offer;

  Result<Place> openPlace(const Offer& theirs, int peer, size_t bytes) const;
  Status openAll(std::span<const Offer> offers, Window& window) const;
  const Window* find(const void* handle) const;
  uint64_t* counterAt(int peer, int sender, uint32_t number) const;
  uint64_t& count(std::vector<uint64_t>& counts, int peer, uint32_t number) const;
  Status put(Host& host, const Operation& operation) const;
  Status wait(Host& host, const Operation& operation);

  int rank_ = 0;
  std::span<const Peer> peers_;
  size_t countersOffset_ = 0;
  mutable std::mutex windowsMutex_;  // held while windows_ changes, and by who may be another thread
  std::vector<Window> windows_;
  std::vector<uint64_t> sent_;   // to each rank, by number
  std::vector<uint64_t> taken_;  // from each rank
};

}  // namespace stretto::communicator
